# frozen_string_literal: true

require "test_helper"
require "socket"
require "tmpdir"
require "support/activated_server"

# Under a service manager: systemd's notifications and socket activation.
class ManagerTest < Minitest::Test
  include ServerTest

  def setup
    @manager_dir = Dir.mktmpdir
    @path = File.join(@manager_dir, "notify")
    @manager = Socket.new(:UNIX, :DGRAM).tap { |socket| socket.bind(Addrinfo.unix(@path, :DGRAM)) }
  end

  def teardown
    @manager.close
    FileUtils.remove_entry(@manager_dir)
    super
  end

  def test_ready_reloading_watchdog_and_stopping
    server = boot(config: "workers 1", env: { "NOTIFY_SOCKET" => @path, "WATCHDOG_USEC" => "400000" })
    heard = hear_until(/READY=1/)
    assert_match(/MAINPID=#{server.pid}/, heard.grep(/READY=1/).first)
    hear_until(/WATCHDOG=1/)
    server.signal("USR1")
    hear_until(/RELOADING=1/)
    hear_until(/READY=1/)
    server.signal("TERM")
    hear_until(/STOPPING=1/)
    assert_equal 0, server.wait_exit
  end

  def test_without_workers_too
    server = boot(config: "workers 0", env: { "NOTIFY_SOCKET" => @path })
    hear_until(/READY=1/)
    server.signal("TERM")
    hear_until(/STOPPING=1/)
    assert_equal 0, server.wait_exit
  end

  def test_an_activated_socket_is_served
    socket = TCPServer.new("127.0.0.1", 0)
    port = socket.addr[1]
    server = ActivatedServer.new(socket, config: "workers 1\nbind \"tcp://127.0.0.1:#{port}\"")
    (@servers ||= []) << server.start.ready
    assert_equal port, server.port
    assert_equal "hello", server.get.body
    # Bound anew it would have been taken: we still hold it.
    assert_equal 0, server.stop
  ensure
    socket.close
  end

  # systemd's `ListenStream=9292` is a socket of IPv6 that serves both kinds of clients.
  def test_an_activated_socket_of_both_protocols_is_that_of_all_addresses
    socket = TCPServer.new("::", 0)
    port = socket.addr[1]
    server = ActivatedServer.new(socket, config: "workers 1\nbind \"tcp://0.0.0.0:#{port}\"")
    (@servers ||= []) << server.start.ready
    assert_equal "hello", HttpClient.open(port) { |client| client.get("/").body }
    assert_equal 0, server.stop
  ensure
    socket&.close
  end

  private

  def hear_until(pattern)
    heard = []
    until heard.last&.match?(pattern)
      raise "never heard #{pattern.inspect}, but #{heard}" unless @manager.wait_readable(Server::WAIT_S)

      heard << @manager.recv(4096)
    end
    heard
  end
end
