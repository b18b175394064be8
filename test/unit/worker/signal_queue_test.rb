# frozen_string_literal: true

require "test_helper"
require "io/wait"
require "chaton/worker/signal_queue"

class SignalsUnitTest < Minitest::Test
  Signals = Chaton::Worker::SignalQueue

  def setup
    @before = trap("USR1", "DEFAULT")
  end

  def teardown
    trap("USR1", @before || "DEFAULT")
    @signals&.close
  end

  def test_a_signal_wakes_the_reader_and_is_taken_once
    @signals = Signals.new(%w[USR1])
    Process.kill("USR1", Process.pid)
    assert @signals.io.wait_readable(5)
    assert_equal %w[USR1], @signals.take
    assert_empty @signals.take
    assert_nil @signals.io.wait_readable(0)
  end

  def test_threads_may_push_and_the_order_is_kept
    @signals = Signals.new([])
    %w[TERM QUIT].each { |name| Thread.new { @signals.push(name) }.join }
    assert_equal %w[TERM QUIT], @signals.take
  end

  def test_a_flood_does_not_block
    @signals = Signals.new([])
    100_000.times { @signals.push("HUP") }
    assert_equal 100_000, @signals.take.size
  end

  def test_its_block_gets_each_signal
    seen = []
    @signals = Signals.new(%w[USR1]) { |name| seen << name }
    @signals.push("USR1")
    @signals.readable(@signals.io)
    assert_equal %w[USR1], seen
  end

  # Between the fork and its own traps a child runs with those of its parent.
  def test_a_child_keeps_its_own_early_signals_only
    @signals = Signals.new(%w[USR1])
    @signals.push("PARENT")
    reader, writer = IO.pipe
    Process.wait(fork do
      Process.kill("USR1", Process.pid)
      own = Signals.new(%w[USR1], inherited: @signals)
      own.io.wait_readable(5)
      writer.write(own.take.join(","))
      exit!(0)
    end)
    writer.close
    assert_equal "USR1", reader.read
    assert_equal %w[PARENT], @signals.take
  end
end
