# frozen_string_literal: true

require "test_helper"
require "stringio"
require_relative "../../../rakelib/support/test_process"


class TestProcessTest < Minitest::Test
  def run_part(script, time_limit_s: 60)
    output = StringIO.new
    [Part.new("some", ["sh", "-c", script], time_limit_s: time_limit_s).run(output), output.string]
  end

  def test_counts_what_both_kinds_of_tests_say
    part, = run_part(<<~SH)
      echo "test result: ok. 3 passed; 0 failed; 0 ignored"
      echo "10 runs, 20 assertions, 1 failures, 2 errors, 0 skips"
      exit 1
    SH
    assert_equal [10, 3], [part.passed, part.failed]
  end

  def test_an_end_without_a_word_is_a_failure
    part, = run_part("exit 3")
    assert_equal 1, part.failed
  end

  # What it left behind has its output open for as long as it lives.
  def test_what_it_leaves_behind_is_ended_with_it
    part, output = run_part("sleep 600 & echo left")
    assert_equal "== some\nleft\n", output
    assert_equal 0, part.failed
  end

  def test_a_part_past_its_limit_is_ended_and_has_failed
    part, output = run_part("sleep 600", time_limit_s: 0.1)
    assert_includes output, "some took longer than 0.1 s"
    assert_equal 1, part.failed
  end
end
