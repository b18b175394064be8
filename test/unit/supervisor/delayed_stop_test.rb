# frozen_string_literal: true

require "test_helper"
require "stringio"
require "chaton/supervisor/delayed_stop"
require "chaton/telemetry/log"

class DelayedStopTest < Minitest::Test
  Listeners = Struct.new(:sockets, :waiting) do
    def close_empty = !waiting
  end

  def setup
    @output = StringIO.new
    @listeners = Listeners.new({ "tcp://0.0.0.0:80" => nil }, false)
    @accepting = true
    @begun = 0
  end

  def request(delay_s: 0.0)
    stop = Chaton::Supervisor::DelayedStop.new(@listeners, delay_s, log: Chaton::Telemetry::Log.new(io: @output))
    stop.request(-> { @accepting }, 100.0) { @begun += 1 }
    stop
  end

  def test_with_nothing_to_wait_for_the_stop_begins_at_once
    assert_nil request.due_at
    assert_equal 1, @begun
    assert_empty @output.string
  end

  def test_the_stop_begins_after_the_delay
    stop = request(delay_s: 3.0)
    assert_in_delta 103.0, stop.due_at
    stop.tick(102.9)
    assert_equal 0, @begun
    stop.tick(103.0)
    assert_equal 1, @begun
  end

  def test_without_sockets_there_is_no_delay
    @listeners.sockets = {}
    request(delay_s: 3.0)
    assert_equal 1, @begun
  end

  def test_connections_that_arrived_are_accepted_first
    @listeners.waiting = true
    stop = request
    assert_equal 0, @begun
    assert_operator stop.due_at, :>, 100.0
    @listeners.waiting = false
    stop.tick(stop.due_at)
    assert_equal 1, @begun
  end

  def test_connections_that_nobody_accepts_are_not_waited_for
    @listeners.waiting = true
    @accepting = false
    request
    assert_equal 1, @begun
  end

  def test_the_wait_for_connections_is_bounded
    @listeners.waiting = true
    stop = request(delay_s: 1.0)
    stop.tick(105.9)
    assert_equal 0, @begun
    stop.tick(106.0)
    assert_equal 1, @begun
  end

  def test_a_second_request_changes_nothing
    stop = request(delay_s: 3.0)
    stop.request(-> { true }, 102.0) { flunk }
    assert_in_delta 103.0, stop.due_at
  end

  def test_a_stop_at_once_cancels_it
    stop = request(delay_s: 3.0)
    stop.cancel
    stop.tick(200.0)
    assert_nil stop.due_at
    assert_equal 0, @begun
  end
end
