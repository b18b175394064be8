# frozen_string_literal: true

require "test_helper"
require "chaton/cli"

class ArgumentsTest < Minitest::Test
  def parse(*argv, switches: ["--json"])
    Chaton::CLI::Arguments.new(argv, options: Chaton::Config::Options.on_command_line, switches: switches)
  end

  def problems(*argv) = parse(*argv).problems.map { |problem| [problem.message, problem.suggestion].compact.join("|") }

  def test_ways_to_write_a_value
    expected = { workers: "2" }
    [%w[-w 2], %w[-w2], %w[-w=2], %w[--workers 2], %w[--workers=2]].each do |argv|
      assert_equal expected, parse(*argv).given, argv
    end
    assert_equal({ config_file: "-" }, parse("-C", "-").given)
  end

  def test_lists_switches_and_the_rest
    parsed = parse("-b", "tcp://a:1", "config.ru", "--bind=unix://b?umask=0117", "--no-preload", "--json", "--web")
    assert_equal({ bind: ["tcp://a:1", "unix://b?umask=0117"], preload: false, web: true }, parsed.given)
    assert_equal ["config.ru"], parsed.rest
    assert parsed.switch?("--json")
    refute parsed.switch?("--help")
    assert_equal ["-w"], parse("--", "-w").rest
  end

  def test_the_value_of_an_option_that_is_not_known_is_no_second_mistake
    parsed = parse("--wokers", "3")
    parsed.rest_problem("3 is neither a command nor a file")
    assert_equal ["--wokers is not an option"], parsed.problems.map(&:message)
    parsed = parse("3")
    parsed.rest_problem("3 is neither a command nor a file")
    assert_equal 1, parsed.problems.size
  end

  def test_mistakes
    assert_equal ["--wokers is not an option|--workers"], problems("--wokers=3")
    assert_equal ["-z is not an option"], problems("-z")
    assert_equal ["--stop-dely is not an option: stop_delay_s can only be set in a configuration file " \
                  "(docs/CONFIGURATION.md)"], problems("--stop-dely=3")
    assert_match(/abort_on_close_s can only be set/, problems("--abort-on-clos").first)
    assert_match(/: stop_delay_s can only be set/, problems("--stop-delay=3").first)
    assert_equal ["-w needs a value: -w N"], problems("-w", "--json")
    assert_equal ["--json takes no value, not \"x\""], problems("--json=x")
    assert_equal ["--preload takes no value, not \"x\""], problems("--preload=x")
    assert_equal ["--no-workers is not an option|--workers"], problems("--no-workers")
  end
end
