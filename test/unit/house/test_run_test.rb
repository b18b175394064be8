# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require_relative "../../../rakelib/support/test_process"
require_relative "../../../rakelib/support/test_run"

class TestRunTest < Minitest::Test
  def setup
    @dir = Dir.mktmpdir("chaton-run")
    @out = StringIO.new
  end

  def teardown = FileUtils.remove_entry(@dir)

  def test_followers_run_and_all_are_counted
    first = process("compile", "true") { [process("follower", "echo 'test result: ok. 2 passed; 0 failed;'")] }
    assert run_all(first, process("ruby", "echo '3 runs, 3 assertions, 0 failures, 0 errors'"))
    assert_equal "5 passed, 0 failed", @out.string.lines.last.chomp
  end

  def test_output_is_shown_of_failures_only
    refute run_all(process("good", "echo fine; echo '1 runs, 1 assertions, 0 failures, 0 errors'"),
                   process("bad", "echo broken; exit 1"))
    assert_includes @out.string, "broken"
    refute_includes @out.string, "fine"
  end

  def test_the_longest_of_the_last_run_starts_first
    remember(long: 9.0, short: 0.1)
    run_all(*%w[short new long].map { |name| process(name, "true") }, slots: 1)
    assert_equal %w[new long short], order
  end

  def test_what_others_follow_starts_first_and_they_take_their_place_among_the_others
    remember(long: 9.0, short: 0.1, follower: 3.0, late: 0.05, compile: 0.01)
    leader = process("compile", "true") { %w[late follower].map { |name| process(name, "true") } }
    run_all(*%w[short long].map { |name| process(name, "true") }, leader, slots: 1)
    assert_equal %w[compile long follower short late], order
  end

  def test_where_nothing_is_known_what_follows_comes_before_what_has_waited
    run_all(process("other", "true"), process("compile", "true") { [process("follower", "true")] }, slots: 1)
    assert_equal %w[compile follower other], order
  end

  def test_a_process_that_wants_to_be_alone_waits_for_the_others
    alone = TestProcess.new("part", "alone", ["true"], alone: true)
    run_all(alone, process("slow", "sleep 0.2") { [process("follower", "true")] })
    assert_equal %w[slow follower alone], order
  end

  def test_no_test_at_all_is_a_failure
    refute run_all(process("empty", "true"))
  end

  def test_nothing_starts_after_the_time_limit_and_the_report_says_so
    assert run_all(process("first", "echo '1 runs, 1 assertions, 0 failures, 0 errors'; sleep 1.1"),
                   process("second", "exit 1"), slots: 1, seconds: 1)
    assert_match(/^left out, because the time was over: second$/, @out.string)
    assert_equal "1 passed, 0 failed", @out.string.lines.last.chomp
  end

  def test_skipped_tests_are_reported
    assert run_all(process("ruby", "echo '3 runs, 3 assertions, 0 failures, 0 errors, 2 skips'"))
    assert_match(/^2 skipped, because a gem is missing$/, @out.string)
    assert_equal "1 passed, 0 failed", @out.string.lines.last.chomp
  end

  def test_the_result_has_the_numbers_of_each_part
    run_all(process("ruby", "echo '3 runs, 3 assertions, 1 failures, 0 errors'"))
    result = JSON.parse(File.read(File.join(@dir, "result.json")))
    numbers = { "passed" => 2, "failed" => 1, "skipped" => 0, "seconds" => 0 }
    assert_equal({ "parts" => { "part" => numbers }, "cut" => [] }, result)
  end

  def test_a_failure_that_does_not_come_back_alone_is_reported_and_counts_as_passed
    assert run_all(second_try("shaky"), again_max: 1)
    assert_includes @out.string, "broken"
    assert_match(/^failed, and passed when it ran again alone: shaky$/, @out.string)
    assert_equal "1 passed, 0 failed", @out.string.lines.last.chomp
  end

  def test_a_failure_that_comes_back_counts
    refute run_all(process("bad", "echo '2 runs, 2 assertions, 1 failures, 0 errors'; exit 1"), again_max: 1)
    assert_equal "1 passed, 1 failed", @out.string.lines.last.chomp
    refute_match(/^failed, and passed/, @out.string)
  end

  def test_nothing_runs_again_when_more_have_failed
    refute run_all(second_try("one"), second_try("two"), again_max: 1)
    refute_includes @out.string, "run again"
  end

  def test_a_failure_counts_when_no_time_is_left_to_run_it_again
    refute run_all(process("slow", "sleep 1.1; exit 1"), seconds: 1, again_max: 1)
    assert_equal "0 passed, 1 failed", @out.string.lines.last.chomp
  end

  private

  def remember(**times) = File.write(File.join(@dir, "times.json"), JSON.generate(times))

  # @return [Array<String>] names of the processes that have ended
  def order = @out.string.scan(/^ok +part: (\w+)/).flatten

  # Fails on its first run.
  def second_try(name)
    mark = File.join(@dir, name)
    process(name, "[ -e #{mark} ] || { touch #{mark}; echo broken; exit 1; }\n" \
                  "echo '1 runs, 1 assertions, 0 failures, 0 errors'")
  end

  def process(name, script, &) = TestProcess.new("part", name, ["sh", "-c", script], &)

  def run_all(*processes, slots: 2, **options)
    TestRun.new(slots: slots, times_path: File.join(@dir, "times.json"), result_path: File.join(@dir, "result.json"),
                out: @out, **options).call(processes)
  end
end
