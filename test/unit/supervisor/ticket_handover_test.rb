# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/ticket_handover"

class TicketHandoverTest < Minitest::Test
  Scoreboard = Struct.new(:secret)
  SECRET = "0123456789abcdef" * 2
  NAME = Chaton::Supervisor::TicketHandover::VARIABLE

  def take(env) = Scoreboard.new.tap { |scoreboard| Chaton::Supervisor::TicketHandover.take(scoreboard, env) }.secret

  def pass(secret = SECRET) = Chaton::Supervisor::TicketHandover.pass(Scoreboard.new(secret))

  # As Rails does.
  def test_bytes_stay_as_they_are_with_an_internal_encoding
    before = [Encoding.default_internal, $VERBOSE]
    $VERBOSE = nil
    Encoding.default_internal = Encoding::UTF_8
    reader, env = pass("\xA3".b * Chaton::Supervisor::TicketHandover::BYTES)
    reader.autoclose = false
    assert_equal "\xA3".b * Chaton::Supervisor::TicketHandover::BYTES, take(env)
  ensure
    Encoding.default_internal, $VERBOSE = before
  end

  def test_it_is_taken_once_and_shown_nowhere
    reader, env = pass
    reader.autoclose = false
    refute_includes env.to_s, SECRET
    assert_equal SECRET, take(env)
    assert_empty env
    assert_raises(Errno::EBADF) { IO.for_fd(reader.fileno) }
  end

  def test_what_is_no_secret_is_not_taken
    reader, env = pass
    assert_nil take(env.transform_values { |text| text.sub(Process.pid.to_s, "1") })
    assert_equal SECRET, reader.read
    ["", "x", Process.pid.to_s, "#{Process.pid} 9999"].each { |text| assert_nil take({ NAME => text }) }
    assert_nil take({})
    short, env = pass("short")
    short.autoclose = false
    assert_nil take(env)
  end
end
