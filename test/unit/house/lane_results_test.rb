# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../../rakelib/support/lane_results"

class LaneResultsTest < Minitest::Test
  VERSIONS = { "Ruby" => "3.3.8", "Puma" => "6.6.0", "rustc" => "1.96.0" }.freeze

  def setup
    @dir = Dir.mktmpdir("chaton-lanes")
    @results = LaneResults.new(File.join(@dir, "fresh"), File.join(@dir, "kept"))
  end

  def teardown = FileUtils.remove_entry(@dir)

  def test_a_row_says_versions_tests_commit_and_date
    record("trixie", { "unit" => part(9, 0), "boundary" => part(4, 2) }, "abc1234")
    @results.keep
    assert_includes @results.table.lines(chomp: true),
                    "| Debian 13 | Ruby 3.3.8, Puma 6.6.0 | unit 9, boundary 4 (2 failed) | `abc1234`, 2026-01-02 |"
  end

  def test_the_newest_rails_comes_first_with_the_newest_ruby
    versions = { "trixie" => %w[7.2.2 3.3.8], "ruby-4.0" => %w[7.2.2 4.0.5], "rails-8.1-ruby-3.4" => %w[8.1.3.1 3.4.11],
                 "rails-main-ruby-3.4" => %w[8.2.0.alpha 3.4.11], "rails-8.1-ruby-4.0" => %w[8.1.3.1 4.0.5] }
    versions.each do |lane, (rails, ruby)|
      record(lane, { "unit" => part(1, 0) }, "abc1234", { "Ruby" => ruby, "Rails" => rails })
    end
    @results.keep
    rows = @results.table.lines.drop(2).map { |row| [/Rails (\d[^ ,]*)/, /Ruby (\d[^ ,]*)/].map { |one| row[one, 1] } }
    assert_equal [%w[8.2.0.alpha 3.4.11], %w[8.1.3.1 4.0.5], %w[7.2.2 4.0.5], %w[7.2.2 3.3.8], %w[6.1 3.1]], rows
    assert_includes @results.table, "| Ruby 3.4.11, Rails 8.2.0.alpha / 8.1.3.1 | unit 1, unit 1 |",
                    "they share a line"
    assert_match(/^\| Rails built from source \| Ruby 3/, @results.table)
  end

  def test_skipped_tests_are_not_hidden
    record("ruby-4.0", { "unit" => { **part(9, 1), "skipped" => 3 } }, "abc1234")
    @results.keep
    assert_match(/\| unit 9 \(1 failed, 3 skipped\) \|/, @results.table)
  end

  def test_a_part_that_runs_again_replaces_its_result_only
    record("sid", { "unit" => part(9, 0), "boundary" => part(4, 0) }, "abc1234")
    record("sid", { "unit" => part(10, 0) }, "def5678")
    @results.keep
    assert_match(/unit 10, boundary 4 \| `def5678`, 2026-01-02; `abc1234`, 2026-01-02 \|/, @results.table)
  end

  def test_results_with_other_versions_are_dropped
    record("sid", { "unit" => part(9, 0), "boundary" => part(4, 0) }, "abc1234")
    record("sid", { "unit" => part(10, 0) }, "def5678", VERSIONS.merge("Puma" => "8.0.0"))
    @results.keep
    assert_match(/Puma 8.0.0 \| unit 10 \| `def5678`/, @results.table)
  end

  def test_a_part_that_is_not_complete_does_not_count
    record("sid", { "unit" => part(9, 0), "some integration" => part(1, 0) }, "abc1234", parts: %w[unit])
    record("trixie", { "some integration" => part(1, 0) }, "abc1234", parts: [])
    @results.keep
    assert_match(/\| unit 9 \|/, @results.table)
    refute_match(/Debian 13/, @results.table)
  end

  def test_the_table_replaces_the_one_in_the_page
    page = "above\n<!-- matrix -->\nold\n<!-- end matrix -->\nbelow\n"
    assert_equal "above\n<!-- matrix -->\n#{@results.table}\n<!-- end matrix -->\nbelow\n", @results.render(page)
  end

  private

  def part(passed, failed) = { "passed" => passed, "failed" => failed }

  def record(lane, ran, commit, versions = VERSIONS, parts: ran.keys)
    @results.record(lane, versions: versions, result: { "parts" => ran }, parts: parts,
                          at: { "commit" => commit, "date" => "2026-01-02" })
  end
end
