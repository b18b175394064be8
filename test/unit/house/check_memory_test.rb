# frozen_string_literal: true

require "test_helper"
require "open3"

# bin/check-memory compiles for half an hour, so these tests stop before its parts.
class CheckMemoryTest < Minitest::Test
  ROOT = File.expand_path("../../..", __dir__)

  def test_an_unknown_part_is_refused_with_the_known_ones
    output, status = Open3.capture2e("bin/check-memory", "lom", chdir: ROOT)
    refute_predicate status, :success?
    assert_equal "check-memory: unknown part 'lom': use loom thread address miri valgrind\n", output
  end

  def test_a_missing_tool_is_named
    script = ". bin/support/say.sh; . bin/support/check_memory.sh; PATH=/nowhere; check_memory_valgrind"
    output, status = Open3.capture2e("bash", "-c", script, chdir: ROOT)
    refute_predicate status, :success?
    assert_includes output, "valgrind is missing. Run:  apt-get install valgrind"
  end

  def test_each_part_has_a_row_with_its_result
    parts = File.read("#{ROOT}/bin/support/check_memory.sh")[/CHECK_MEMORY_PARTS=\((.+)\)/, 1].split
    rows = File.readlines("#{ROOT}/docs/MEMORY_CHECKS.md").filter_map { |line| line[/\A\| (\w+) \| /, 1] }
    assert_equal parts, rows - ["part"]
  end
end
