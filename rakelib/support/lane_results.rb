# frozen_string_literal: true

require "fileutils"
require "json"

# The results of the lanes of bin/matrix: a JSON file for each lane, and the table in the README. Each part of the tests
# keeps its own commit and date, because parts may run at different times.
class LaneResults
  TITLES = { "trixie" => "Debian 13", "sid" => "Debian sid", "experimental" => "Debian experimental" }.freeze
  FLOOR = "| Debian 12 | Ruby 3.1, Rack 2.2, Rails 6.1, Puma 5.6, Sidekiq 6.4 | every part | each commit |"
  HEAD = ["| | versions | tests passed | commit, date |", "|---|---|---|---|"].freeze
  # What comes from its own source.
  BUILT = { "rails-" => "Rails built from source", "ruby-" => "Ruby built from source" }.freeze
  BLOCK = /(?<=<!-- matrix -->\n).*?(?=<!-- end matrix -->)/m

  # @param fresh [String] folder of this machine's results
  # @param kept [String] folder of the results that are committed
  def initialize(fresh, kept)
    @fresh = fresh
    @kept = kept
  end

  # @param lane [String]
  # @param versions [Hash{String => String}]
  # @param result [Hash] what `rake test` wrote
  # @param parts [Array<String>] those that count: all of their files ran
  # @param at [Hash{String => String}] commit and date
  def record(lane, versions:, result:, parts:, at:)
    ran = result["parts"].slice(*parts).transform_values { |part| part.merge(at) }
    return if ran.empty?
    before = read(@fresh, lane) || read(@kept, lane) || {}
    # Results with other versions say nothing about these.
    earlier = before["versions"] == versions ? before["parts"] : {}
    FileUtils.mkdir_p(@fresh)
    File.write(path(@fresh, lane), "#{JSON.pretty_generate("versions" => versions, "parts" => earlier.merge(ran))}\n")
  end

  # Adds this machine's results to the committed ones.
  def keep
    FileUtils.mkdir_p(@kept)
    FileUtils.cp(Dir[File.join(@fresh, "*.json")], @kept)
  end

  # @return [String] the lines of the table: the newest Rails first, with the newest Ruby. Versions of Rails that only
  #   differ in it share a line.
  def table
    lanes = Dir[File.join(@kept, "*.json")].map { |file| File.basename(file, ".json") }
    rows = lanes.sort_by { |lane| age(lane) }.reverse.group_by { |lane| alike(lane) }.values
    [*HEAD, *rows.map { |same| row(same) }, FLOOR].join("\n")
  end

  # @param page [String]
  # @return [String] the page with the table of now
  def render(page) = page.sub(BLOCK) { "#{table}\n" }

  private

  # @return [Array<Gem::Version>]
  def age(lane)
    versions = read(@kept, lane)["versions"]
    %w[Rails Ruby].map { |name| Gem::Version.new(versions[name].to_s[/\A\d+(\.\d+)*/] || "0") } << lane
  end

  def alike(lane)
    lane.start_with?("rails-") ? read(@kept, lane)["versions"].except("Rails", "rustc") : lane
  end

  def row(lanes)
    records = lanes.map { |lane| read(@kept, lane) }
    versions = records.first["versions"].except("rustc").keys.map do |name|
      "#{name} #{records.map { |record| record["versions"][name] }.uniq.join(" / ")}"
    end
    parts = records.flat_map { |record| record["parts"].to_a }
    passed = parts.map { |name, part| "#{name} #{shown(part)}" }.join(", ")
    at = parts.map { |_, part| "`#{part["commit"]}`, #{part["date"]}" }.uniq.join("; ")
    "| #{title(lanes.first)} | #{versions.join(", ")} | #{passed} | #{at} |"
  end

  def title(lane) = TITLES[lane] || BUILT.find { |prefix, _| lane.start_with?(prefix) }&.last || lane

  def shown(part)
    rest = %w[failed skipped].reject { |what| part.fetch(what, 0).zero? }
    rest.empty? ? part["passed"] : "#{part["passed"]} (#{rest.map { |what| "#{part[what]} #{what}" }.join(", ")})"
  end

  def read(folder, lane)
    JSON.parse(File.read(path(folder, lane))) if File.exist?(path(folder, lane))
  end

  def path(folder, lane) = File.join(folder, "#{lane}.json")
end
