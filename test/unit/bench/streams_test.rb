# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../../bench/streams/suite"

# The suite's tables, from raw results alone.
class StreamsBenchTest < Minitest::Test
  CELLS = [{ on: 1, threads: 1, mps: 900_000, cpu_s_per_m: 0.4, by_topic: [900_000] },
           { on: 5, threads: 1, mps: 880_000, cpu_s_per_m: 0.45, by_topic: [176_000, 181_000] }].freeze
  TABLE = { server: "chaton", round: 0, lowest_mps: 880_000, highest_mps: 900_000, cpu_s_per_m: 0.45,
            by_topics: 0.978, by_threads: 1.0, cells: CELLS }.freeze

  def setup
    @folder = Dir.mktmpdir("bench")
    FileUtils.mkdir_p(File.join(@folder, "raw"))
    write("run.json", date: "2026-11-21", command: "bin/bench streams", quick: false, machine: { cores: 2 })
  end

  def teardown = FileUtils.remove_entry(@folder)

  def test_a_table_has_a_row_and_its_cells
    write("raw/table-untouched.json", slices: [TABLE])
    text = summary.table
    assert_match(%r{lowest messages/s 880000 \(≥ 600000\).*\| reached \|}, text)
    assert_includes text, "| topics | 1 thread |"
    assert_includes text, "| 5 | 880,000/s, 176,000 to 181,000 each, 0.45 s |"
  end

  def test_a_rate_beside_the_driver_is_a_ratio_of_each_round
    slices = [[0, 800_000, 1_600_000], [1, 900_000, 1_000_000], [2, 700_000, 1_000_000]].flat_map do |round, ours, raw|
      [{ server: "chaton", round: round, mps: ours, cpu_s_per_m: 0.4 },
       { server: "librdkafka", round: round, mps: raw, cpu_s_per_m: 0.3 }]
    end
    write("raw/raw.json", slices: slices)
    assert_match(/against librdkafka 0\.7× \(≥ 0\.6×\)/, summary.table)
  end

  def test_what_could_not_be_measured_falls_short
    write("raw/local.json", slices: [{ server: "chaton", round: 0, error: "no room\nat all" }])
    assert_match(/not measured: chaton \(no room\) \| \*\*falls short\*\*/, summary.table)
  end

  def test_what_is_quick_is_shorter_in_every_respect
    Bench::Streams::Suite.cases.each do |a_case|
      quick = Bench::Streams::Suite.shortened(a_case)
      assert_operator quick.records, :<=, 200_000
      assert_equal 1, quick.rounds
      assert_equal a_case.name, quick.name
    end
    table = Bench::Streams::Suite.shortened(Bench::Streams::Cases.untouched)
    assert_equal [[1, 5], [1, 5]], [table.topics, table.threads]
  end

  private

  def summary = Bench::Streams::Suite.summary(Bench::Results.of_run(@folder))
  def write(name, content) = File.write(File.join(@folder, name), JSON.generate(content))
end
