# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/event_loop"

class EventLoopTest < Minitest::Test
  Source = Struct.new(:ios, :due_at, :seen, :ticks) do
    def readable(io) = seen << io.readpartial(10)
    def tick(_now_s) = self.ticks += 1
  end

  def source(io = nil, due_at: nil)
    Source.new([io].compact, due_at, [], 0)
  end

  def test_it_wakes_for_readable_ios_and_ticks_every_source
    one_io, one_in = IO.pipe
    one = source(one_io)
    other = source
    one_in.write("x")
    Chaton::Supervisor::EventLoop.new([one, other]).turn
    assert_equal ["x"], one.seen
    assert_equal [1, 1], [one.ticks, other.ticks]
  end

  def test_it_wakes_when_something_is_due
    io, = IO.pipe
    due = source(io, due_at: Chaton::Supervisor::EventLoop.now_s + 0.05)
    before = Chaton::Supervisor::EventLoop.now_s
    Chaton::Supervisor::EventLoop.new([due]).turn
    assert_includes 0.045..0.55, Chaton::Supervisor::EventLoop.now_s - before
    assert_empty due.seen
    assert_equal 1, due.ticks
  end

  def test_an_io_closed_by_an_earlier_source_is_skipped
    one_io, one_in = IO.pipe
    other_io, other_in = IO.pipe
    other = source(other_io)
    one = source(one_io)
    one.define_singleton_method(:readable) { |_io| other_io.close }
    [one_in, other_in].each { |input| input.write("x") }
    Chaton::Supervisor::EventLoop.new([one, other]).turn
    assert_empty other.seen
  end
end
