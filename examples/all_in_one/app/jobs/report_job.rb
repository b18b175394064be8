# frozen_string_literal: true

require "chaton"
# "digest" alone loads the class on first use, which fails in some of several threads at once with "Digest::Base cannot
# be directly inherited in Ruby".
require "digest/sha2"
require "fileutils"

# A background job: it computes for a moment, writes a file, and produces a record.
class ReportJob
  include Chaton::Job
  options queue: "default", retry: 5

  FOLDER = File.expand_path("../../storage/reports", __dir__)
  # Most files that are kept, so that a demonstration does not fill the disk.
  FILES_MAX = 100
  ROUNDS = 20

  def perform(number, title)
    digest = ROUNDS.times.reduce(title) { |text, _| Digest::SHA256.hexdigest(text) }
    FileUtils.mkdir_p(FOLDER)
    File.write(File.join(FOLDER, "#{number % FILES_MAX}.txt"), "#{title}\n#{digest}\n")
    Chaton.produce("events", { kind: "report", number: number }, key: "report #{number}")
  end
end
