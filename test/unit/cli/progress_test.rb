# frozen_string_literal: true

require "test_helper"
require "chaton/cli/progress"
require "stringio"

class ProgressTest < Minitest::Test
  def terminal = StringIO.new.tap { |io| io.define_singleton_method(:tty?) { true } }

  def test_a_terminal_gets_a_bar_that_is_wiped_away
    io = terminal
    Chaton::CLI::Progress.on(io, "delete", 3_000) { |progress| progress.at(1_500) }
    assert_match(/\A\rdelete \[#{"#" * 15}#{" " * 15}\]  50 %  1,500 of 3,000/, io.string)
    assert io.string.end_with?("\r\e[K")
  end

  def test_it_is_not_drawn_more_often_than_people_can_see
    io = terminal
    Chaton::CLI::Progress.on(io, "x", 10) { |progress| 10.times { |number| progress.at(number) } }
    assert_equal 1, io.string.scan("%").size
  end

  def test_nothing_else_gets_one
    io = StringIO.new
    assert_equal 7, Chaton::CLI::Progress.on(io, "x", 10) { |progress| progress.at(1) || 7 }
    assert_empty io.string
    Chaton::CLI::Progress.on(terminal, "x", 0) { |progress| progress.at(1) }
  end
end
