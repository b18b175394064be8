# frozen_string_literal: true

require "chaton"
require "fileutils"
require "json"

# Counts the visits of each page. There is one instance for each partition this process has, so what it keeps is of that
# partition only.
class VisitsConsumer < Chaton::Consumer
  FOLDER = File.expand_path("../../storage/counts", __dir__)

  def consume(batch)
    counts = self.counts
    batch.each do |record|
      # A batch may come again when a process dies: what the file has already is left out.
      next if record.offset < counts["next"]

      page = record.value.fetch("page")
      counts["pages"][page] = counts["pages"].fetch(page, 0) + 1
      counts["next"] = record.offset + 1
    end
    save(counts)
  end

  private

  # Counts and the offset they include are one file, which is replaced in one step.
  def save(counts)
    File.write("#{file}.new", JSON.generate(counts))
    File.rename("#{file}.new", file)
  end

  def counts
    FileUtils.mkdir_p(FOLDER)
    File.exist?(file) ? JSON.parse(File.read(file)) : { "next" => 0, "pages" => {} }
  end

  def file = File.join(FOLDER, "#{partition}.json")
end
