# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "chaton/supervisor/systemd_notify"

class NotifyTest < Minitest::Test
  SystemdNotify = Chaton::Supervisor::SystemdNotify

  def setup
    @dir = Dir.mktmpdir
    @path = File.join(@dir, "notify")
    @manager = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix(@path, :DGRAM)) }
  end

  def teardown
    @manager.close
    FileUtils.remove_entry(@dir)
  end

  def told
    @manager.recv_nonblock(4096, exception: false)
  end

  def test_it_tells_the_manager
    one = SystemdNotify.new({ "NOTIFY_SOCKET" => @path })
    one.ready("serving")
    assert_equal "READY=1\nSTATUS=serving\nMAINPID=#{Process.pid}", told
    one.reloading
    assert_match(/\ARELOADING=1\nMONOTONIC_USEC=\d+\z/, told)
    one.stopping
    assert_equal "STOPPING=1", told
  end

  def test_an_abstract_address_begins_with_at
    name = "chaton-test-#{Process.pid}"
    manager = Socket.new(:UNIX, :DGRAM)
    manager.bind(Addrinfo.unix("\0#{name}", :DGRAM))
    SystemdNotify.new({ "NOTIFY_SOCKET" => "@#{name}" }).stopping
    assert_equal "STOPPING=1", manager.recv_nonblock(4096)
  ensure
    manager.close
  end

  def test_the_watchdog_hears_at_half_the_limit
    one = SystemdNotify.new({ "NOTIFY_SOCKET" => @path, "WATCHDOG_USEC" => "2000000" })
    one.tick(one.due_at)
    assert_equal "WATCHDOG=1", told
    one.tick(one.due_at - 0.5)
    assert_equal :wait_readable, told
    one.tick(one.due_at)
    assert_equal "WATCHDOG=1", told
  end

  def test_the_watchdog_waits_while_the_program_starts_again
    env = { "NOTIFY_SOCKET" => @path, "WATCHDOG_USEC" => "2000000" }
    SystemdNotify.new(env).starting_again(60.0)
    assert_equal "WATCHDOG=1\nWATCHDOG_USEC=62000000", told
    SystemdNotify.new(env).ready("serving")
    assert_match(/\nWATCHDOG_USEC=2000000\z/, told)
    SystemdNotify.new({ "NOTIFY_SOCKET" => @path }).starting_again(60.0)
    assert_equal :wait_readable, told
  end

  def test_the_watchdog_of_another_process_is_not_ours
    env = { "NOTIFY_SOCKET" => @path, "WATCHDOG_USEC" => "2000000", "WATCHDOG_PID" => "1" }
    assert_nil SystemdNotify.new(env).due_at
  end

  def test_without_a_manager_nothing_happens
    one = SystemdNotify.new({})
    one.ready("serving")
    assert_nil one.due_at
    SystemdNotify.new({ "NOTIFY_SOCKET" => "#{@path}.gone" }).stopping
  end
end
