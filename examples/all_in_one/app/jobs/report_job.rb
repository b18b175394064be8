# frozen_string_literal: true

require "chaton"
# Not "digest" alone: that loads the class on its first use, and of several threads that come then some are told
# "Digest::Base cannot be directly inherited in Ruby".
require "digest/sha2"
require "fileutils"

# A job that a request leaves for later: it works for a moment, writes a file, and tells the stream.
class ReportJob
  include Chaton::Job
  options queue: "default", retry: 5

  FOLDER = File.expand_path("../../storage/reports", __dir__)
  # Files are kept by number modulo this, so that a demonstration does not fill the disk.
  FILES_MAX = 100
  ROUNDS = 20

  def perform(number, title)
    digest = ROUNDS.times.reduce(title) { |text, _| Digest::SHA256.hexdigest(text) }
    FileUtils.mkdir_p(FOLDER)
    File.write(File.join(FOLDER, "#{number % FILES_MAX}.txt"), "#{title}\n#{digest}\n")
    Chaton.produce("events", { kind: "report", number: number }, key: "report #{number}")
  end
end
