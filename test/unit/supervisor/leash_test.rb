# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/leash"

class LeashTest < Minitest::Test
  def setup
    @leash, @worker = Chaton::Supervisor::Leash.pair
  end

  def teardown
    [@leash, @worker].each { |end_of_it| end_of_it.close unless end_of_it.closed? }
  end

  def test_a_ping_is_one_byte
    assert @leash.ping
    assert_equal "p", @worker.readpartial(10)
  end

  def test_answers_are_told_in_order
    @worker.write("rg+?r")
    assert_equal %i[rust ruby ready rust], @leash.read
    assert_empty @leash.read
  end

  def test_a_reason_goes_to_the_end
    @worker.write("r!no data")
    assert_equal %i[rust], @leash.read
    @worker.write("base +rg")
    assert_empty @leash.read
    assert_equal "no database +rg", @leash.reason
  end

  def test_a_reason_is_bounded
    @worker.write("!#{"x" * 4000}")
    @leash.read
    assert_equal Chaton::Supervisor::Leash::REASON_BYTES_MAX, @leash.reason.size
  end

  def test_the_end_of_the_worker_closes_it
    @worker.close
    assert_equal %i[gone], @leash.read
    assert_predicate @leash, :closed?
    refute @leash.ping
  end

  def test_a_line_is_sent_whole_before_the_ping_that_follows
    line = "x" * 60_000
    count = 0
    count += 1 while @leash.recover(line) && count < 100
    refute @leash.ping
    assert_predicate @leash, :unsent?
    text = +""
    until text.end_with?("p")
      text << @worker.readpartial(100_000)
      @leash.flush
    end
    refute_predicate @leash, :unsent?
    assert_equal [*Array.new(count + 1) { "R#{line}\n" }, "p"], text.lines
  end

  def test_what_a_worker_leaves_unread_is_bounded
    100.times { @leash.recover("x" * 60_000) }
    refute @leash.recover("x" * 60_000)
    @worker.close
    refute @leash.flush
    refute_predicate @leash, :unsent?
  end

  def test_a_worker_that_does_not_read_blocks_nobody
    pings = 0
    pings += 1 while @leash.ping
    assert_operator pings, :>, 1
  end
end
