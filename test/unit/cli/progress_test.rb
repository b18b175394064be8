# frozen_string_literal: true

require "test_helper"
require "chaton/cli/progress"
require "stringio"

class ProgressTest < Minitest::Test
  def setup
    @term = ENV.fetch("TERM", nil)
    ENV["TERM"] = "xterm"
    @now_s = 100.0
  end

  def teardown
    ENV["TERM"] = @term
  end

  def terminal(columns = 80)
    StringIO.new.tap do |io|
      io.define_singleton_method(:tty?) { true }
      io.define_singleton_method(:winsize) { [24, columns] }
    end
  end

  # Named: after a lambda, Ruby 3.1 does not find an anonymous block.
  def on(io, total, title: "delete", &block)
    Chaton::CLI::Progress.on(io, title, total, clock: -> { @now_s }, &block)
  end

  def test_a_terminal_gets_a_bar_that_is_wiped_away
    io = terminal
    on(io, 3_000) do |progress|
      @now_s += 2
      progress.at(1_500)
    end
    shown = io.string.match(%r{\A\rdelete \[(#+)( +)\]  50 %  1,500 of 3,000  750/s  2 s left\e\[K})
    assert shown, io.string
    assert_equal shown[1].size, shown[2].size
    assert io.string.end_with?("\r\e[K")
  end

  def test_it_is_not_drawn_more_often_than_people_can_see
    io = terminal
    on(io, 10) { |progress| 10.times { |number| progress.at(number) } }
    assert_equal 1, io.string.scan("%").size
  end

  def test_a_narrow_terminal_gets_no_line_that_breaks
    [5, 30, 40, 200].each do |columns|
      io = terminal(columns)
      on(io, 3_000) do |progress|
        @now_s += 100
        progress.at(10)
      end
      drawn = io.string[/\r([^\e]*)\e/, 1]
      assert_operator drawn.size, :<, columns
      assert_equal columns >= 30, drawn.include?("%"), columns
      assert_includes drawn, "8 h" if columns == 200
    end
  end

  def test_a_log_gets_a_line_every_few_seconds
    io = StringIO.new
    assert_equal(7, on(io, 100) do |progress|
      100.times do |number|
        @now_s += 0.125
        progress.at(number)
      end
      7
    end)
    assert_equal ["delete:  39 %  39 of 100  8/s  8 s left\n", "delete:  79 %  79 of 100  8/s  3 s left\n"],
                 io.string.lines
  end

  def test_short_work_and_work_without_a_size_leave_nothing
    io = StringIO.new
    on(io, 10) { |progress| progress.at(1) }
    assert_empty io.string
    on(terminal, 0) { |progress| progress.at(1) }
  end
end
