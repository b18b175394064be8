# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/service_output"

# What a service prints becomes lines of the log within bounds.
class ServiceOutputTest < Minitest::Test
  # Keeps the lines.
  class Lines
    attr_reader :all

    def initialize = @all = []
    def info(line) = @all << line
    def warn(message, **fields) = @all << [message, fields]
  end

  def setup
    @log = Lines.new
    @pipe, @input = IO.pipe
    @output = Chaton::Supervisor::ServiceOutput.new("css", @pipe, lines_max: 3, log: @log)
  end

  def teardown = [@pipe, @input].each(&:close)

  def test_lines_are_put_together
    @input << "a\nb"
    assert @output.read(1.0)
    assert_equal ["css | a"], @log.all
    @input << "c\u00fc\n\xFF\n"
    assert @output.read(1.1)
    assert_equal ["css | a", "css | bc\u00fc".b, "css | \xFF".b], @log.all.map(&:b)
  end

  def test_a_long_line_is_split
    @input << ("x" * 10_000)
    @output.read(1.0)
    @output.close(1.0)
    assert_equal [4096, 4096, 1808], (@log.all.map { |line| line.bytesize - "css | ".bytesize })
    assert_predicate @pipe, :closed?
  end

  def test_lines_above_the_limit_of_a_second_are_dropped_and_counted
    @input << (1..9).map { |number| "#{number}\n" }.join
    @output.read(1.0)
    @input << "10\n"
    @output.read(2.0)
    assert_equal ["css | 1", "css | 2", "css | 3"], @log.all.first(3)
    assert_equal [{ service: "css", lines: 6 }, "css | 10"], [@log.all[3].last, @log.all[4]]
  end

  def test_the_end_of_the_output
    @input << "last"
    @input.close
    assert @output.read(1.0)
    refute @output.read(1.0)
    @output.close(1.0)
    assert_equal ["css | last"], @log.all
  end
end
