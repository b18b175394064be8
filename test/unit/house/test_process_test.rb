# frozen_string_literal: true

require "test_helper"
require_relative "../../../rakelib/support/test_process"

class TestProcessTest < Minitest::Test
  def test_closing_lines_of_both_kinds_are_counted
    process = run_script(<<~SH)
      echo "test result: ok. 3 passed; 0 failed; 0 ignored"
      echo "10 runs, 20 assertions, 1 failures, 2 errors, 0 skips"
      exit 1
    SH
    assert_equal [10, 3], [process.passed, process.failed]
  end

  def test_a_skipped_test_has_neither_passed_nor_failed
    process = run_script("echo '10 runs, 20 assertions, 1 failures, 0 errors, 4 skips'")
    assert_equal [5, 1, 4], [process.passed, process.failed, process.skipped]
    assert_includes process.to_s, "(5 passed, 4 skipped, "
  end

  def test_times_of_tests_are_read
    assert_equal({ "WebTest#test_hello_=_1" => 1.25 }, run_script("echo 'WebTest#test_hello_=_1 = 1.25 s = .'").tests)
  end

  def test_an_end_without_a_closing_line_is_a_failure
    assert_equal 1, run_script("exit 3").failed
  end

  # A process that is left behind holds the output open for as long as it lives.
  def test_processes_left_behind_are_ended
    process = run_script("sleep 600 & echo left")
    assert_equal ["left\n", 0], [process.output, process.failed]
  end

  def test_a_process_past_its_limit_is_ended_and_has_failed
    process = run_script("sleep 600", time_limit_s: 0.1)
    assert_includes process.output, "some took longer than 0.1 s"
    assert_equal 1, process.failed
  end

  def test_followers_come_after_a_success_only
    followers = ["exit 0", "exit 1"].map do |script|
      TestProcess.new("part", "some", ["sh", "-c", "echo one; #{script}"]) { |output| [output] }.run.followers
    end
    assert_equal [["one\n"], []], followers
  end

  private

  def run_script(script, time_limit_s: 60)
    TestProcess.new("part", "some", ["sh", "-c", script], time_limit_s: time_limit_s).run
  end
end
