# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/child"

class HeartbeatTest < Minitest::Test
  def heartbeat(timeout_s = 8)
    Chaton::Supervisor::Heartbeat.new(timeout_s, 0.0)
  end

  def test_it_pings_four_times_within_the_timeout
    one = heartbeat
    assert one.ping?(0.0)
    one.pinged(0.0)
    refute one.ping?(1.9)
    assert one.ping?(2.0)
  end

  def test_an_answered_ping_is_forgotten
    one = heartbeat
    one.pinged(0.0)
    one.ruby_answered(7.0)
    one.pinged(7.0)
    refute one.lost?(14.9)
    assert one.lost?(15.0)
  end

  def test_only_ruby_counts_as_alive
    one = heartbeat
    one.pinged(0.0)
    one.rust_answered
    assert one.lost?(8.0)
    assert one.rust_alive?(8.0)
    assert_in_delta 8.0, one.silent_s(8.0)
  end

  def test_a_new_ping_does_not_count_against_rust
    one = heartbeat
    one.pinged(0.0)
    one.rust_answered
    one.pinged(8.0)
    assert one.lost?(8.0)
    assert one.rust_alive?(8.0)
  end

  def test_a_stopped_process_is_distinguished_from_a_held_gvl
    one = heartbeat
    one.pinged(0.0)
    refute one.rust_alive?(8.0)
  end

  # The process was stopped after its Rust side had answered the first ping, and before Ruby got the GVL.
  def test_a_process_stopped_between_its_two_answers_is_too
    one = heartbeat
    one.pinged(0.0)
    one.rust_answered
    [2.0, 4.0, 6.0].each { |at| one.pinged(at) }
    assert one.lost?(8.0)
    refute one.rust_alive?(8.0)
  end

  # The supervisor was stopped for an hour: no ping went out, none is overdue.
  def test_a_pause_of_the_supervisor_kills_nobody
    one = heartbeat
    one.pinged(0.0)
    one.ruby_answered(0.1)
    refute one.lost?(3600.0)
    assert one.ping?(3600.0)
  end

  def test_due_is_the_next_ping_or_the_loss
    one = heartbeat
    assert_in_delta 0.0, one.due_at
    one.pinged(0.0)
    assert_in_delta 2.0, one.due_at
    one.pinged(2.0)
    one.pinged(4.0)
    one.pinged(6.0)
    one.pinged(7.9)
    assert_in_delta 8.0, one.due_at
  end

  def test_zero_switches_it_off
    one = heartbeat(0)
    refute_predicate one, :on?
    refute one.ping?(100.0)
    refute one.lost?(100.0)
    assert_nil one.due_at
  end
end
