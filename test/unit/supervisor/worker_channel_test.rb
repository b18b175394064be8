# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/worker_channel"

class WorkerChannelTest < Minitest::Test
  def setup
    @channel, @worker = Chaton::Supervisor::WorkerChannel.pair
  end

  def teardown
    [@channel, @worker].each { |end_of_it| end_of_it.close unless end_of_it.closed? }
  end

  def test_a_ping_is_one_byte
    assert @channel.ping
    assert_equal "p", @worker.readpartial(10)
  end

  def test_events_are_read_in_order
    @worker.write("rg+?r")
    assert_equal %i[rust ruby ready rust], @channel.read
    assert_empty @channel.read
  end

  def test_a_reason_goes_to_the_end
    @worker.write("r!no data")
    assert_equal %i[rust], @channel.read
    @worker.write("base +rg")
    assert_empty @channel.read
    assert_equal "no database +rg", @channel.reason
  end

  def test_a_reason_is_bounded
    @worker.write("!#{"x" * 4000}")
    @channel.read
    assert_equal Chaton::Supervisor::WorkerChannel::REASON_BYTES_MAX, @channel.reason.size
  end

  def test_the_end_of_the_worker_closes_it
    @worker.close
    assert_equal %i[gone], @channel.read
    assert_predicate @channel, :closed?
    refute @channel.ping
  end

  def test_a_line_is_sent_whole_before_the_ping_that_follows
    line = "x" * 60_000
    count = 0
    count += 1 while @channel.recover(line) && count < 100
    refute @channel.ping
    assert_predicate @channel, :unsent?
    text = +""
    until text.end_with?("p")
      text << @worker.readpartial(100_000)
      @channel.flush
    end
    refute_predicate @channel, :unsent?
    assert_equal [*Array.new(count + 1) { "R#{line}\n" }, "p"], text.lines
  end

  def test_unread_bytes_are_bounded
    100.times { @channel.recover("x" * 60_000) }
    refute @channel.recover("x" * 60_000)
    @worker.close
    refute @channel.flush
    refute_predicate @channel, :unsent?
  end

  def test_a_worker_that_does_not_read_blocks_nobody
    pings = 0
    pings += 1 while @channel.ping
    assert_operator pings, :>, 1
  end
end
