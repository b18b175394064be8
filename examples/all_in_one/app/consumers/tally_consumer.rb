# frozen_string_literal: true

require "chaton"
require "fileutils"
require "json"

# Counts events by kind: requests write clicks, and jobs write reports.
class TallyConsumer < Chaton::Consumer
  FOLDER = File.expand_path("../../storage/tally", __dir__)

  # @return [Hash{String=>Integer}] counts of all partitions
  def self.all
    Dir["#{FOLDER}/*.json"].map { |file| JSON.parse(File.read(file))["kinds"] }
      .reduce({}) { |sum, kinds| sum.merge(kinds) { |_, one, other| one + other } }
  end

  def consume(batch)
    counts = @counts ||= load
    batch.each do |record|
      # A batch comes again when its process dies, so counted records are skipped.
      next if record.offset < counts["next"]

      kind = record.value.fetch("kind")
      counts["kinds"][kind] = counts["kinds"].fetch(kind, 0) + 1
      counts["next"] = record.offset + 1
    end
    save(counts)
  end

  private

  def save(counts)
    File.write("#{file}.new", JSON.generate(counts))
    File.rename("#{file}.new", file)
  end

  def load
    FileUtils.mkdir_p(FOLDER)
    File.exist?(file) ? JSON.parse(File.read(file)) : { "next" => 0, "kinds" => {} }
  end

  def file = File.join(FOLDER, "#{partition}.json")
end
