# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require "chaton/config/bind"
require "chaton/supervisor/listeners"
require "chaton/telemetry/log"

class ListenersTest < Minitest::Test
  Bind = Chaton::Config::Bind
  Inherited = Chaton::Supervisor::InheritedSockets

  def setup
    @output = StringIO.new
    @opened = []
  end

  def teardown
    @opened.each(&:close)
  end

  def listeners(*binds, env: {})
    log = Chaton::Telemetry::Log.new(io: @output)
    Chaton::Supervisor::Listeners.new(binds, log: log, inherited: Inherited.new(env)).tap { |one| @opened << one }
  end

  def tcp(port = 0, host = "127.0.0.1")
    Bind.new(scheme: "tcp", host: host, port: port)
  end

  def test_addresses_contain_the_port_that_the_kernel_chose
    one = listeners(tcp).tap(&:open)
    assert_match(%r{\Atcp://127\.0\.0\.1:[1-9]\d*\z}, one.addresses.first)
  end

  def test_ipv6_is_written_with_brackets
    one = listeners(tcp(0, "::1")).tap(&:open)
    assert_match(%r{\Atcp://\[::1\]:\d+\z}, one.addresses.first)
  end

  def test_order_is_that_of_the_binds
    Dir.mktmpdir do |dir|
      one = listeners(Bind.new(scheme: "unix", path: "#{dir}/a.sock", mode: 0o600), tcp).tap(&:open)
      assert_equal [UNIXServer, TCPServer], one.sockets.values.map(&:class)
      assert_equal 0o600, File.stat("#{dir}/a.sock").mode & 0o777
      one.close
      refute_path_exists "#{dir}/a.sock"
    end
  end

  def test_the_unix_socket_of_a_successor_stays
    Dir.mktmpdir do |dir|
      bind = Bind.new(scheme: "unix", path: "#{dir}/a.sock")
      one = listeners(bind).tap(&:open)
      File.unlink(bind.path)
      listeners(bind).open
      one.close
      UNIXSocket.new(bind.path).close
    end
  end

  def test_a_taken_port_is_named
    port = listeners(tcp).tap(&:open).sockets.values.first.addr[1]
    error = assert_raises(Chaton::BindError) { listeners(tcp(port)).open }
    assert_match(/tcp:\S+:#{port} is in use/, error.message)
  end

  def test_two_binds_with_the_same_port_are_named
    # No other test uses this address.
    host = "127.0.93.7"
    port = TCPServer.open(host, 0) { |server| server.addr[1] }
    error = assert_raises(Chaton::BindError) { listeners(tcp(port, host), tcp(port, "0.0.0.0")).open }
    assert_match(%r{\Atcp://0.0.0.0:#{port} has the same port as tcp://#{host}:#{port}; }, error.message)
  end

  def test_a_served_unix_socket_is_not_taken
    Dir.mktmpdir do |dir|
      bind = Bind.new(scheme: "unix", path: "#{dir}/a.sock")
      listeners(bind).open
      assert_match(/in use/, assert_raises(Chaton::BindError) { listeners(bind).open }.message)
      File.write("#{dir}/file", "")
      other = Bind.new(scheme: "unix", path: "#{dir}/file")
      assert_match(/not a socket/, assert_raises(Chaton::BindError) { listeners(other).open }.message)
      assert_path_exists "#{dir}/file"
    end
  end

  def test_an_unknown_host_is_named
    error = assert_raises(Chaton::BindError) { listeners(tcp(0, "203.0.113.1")).open }
    assert_match(/203\.0\.113\.1/, error.message)
  end

  def test_a_successor_takes_the_sockets_over
    first = listeners(tcp).tap(&:open)
    second = listeners(tcp, env: environment(first)).tap(&:open)
    assert_equal first.addresses, second.addresses
  end

  def test_a_preloader_binds_nothing
    first = listeners(tcp).tap(&:open)
    second = listeners(tcp(0, "::1"), env: environment(first))
    assert_match(/restart in full/, assert_raises(Chaton::BindError) { second.inherit }.message)
  end

  def test_closing_refuses_new_clients_although_another_process_has_the_socket
    one = listeners(tcp).tap(&:open)
    socket = one.sockets.values.first
    port = socket.addr[1]
    copy = socket.dup
    client = TCPSocket.new("127.0.0.1", port)
    refute one.close_empty
    copy.accept.close
    assert one.close_empty
    assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
    assert_empty one.addresses
    assert_equal port, listeners(tcp(port)).tap(&:open).sockets.values.first.addr[1]
  ensure
    [client, copy].compact.each(&:close)
  end

  def test_a_unix_socket_is_removed_when_no_connection_waits
    Dir.mktmpdir do |dir|
      one = listeners(Bind.new(scheme: "unix", path: "#{dir}/a.sock")).tap(&:open)
      client = UNIXSocket.new("#{dir}/a.sock")
      refute one.close_empty
      one.sockets.values.first.accept.close
      assert one.close_empty
      refute_path_exists "#{dir}/a.sock"
    ensure
      client&.close
    end
  end

  def test_a_socket_of_the_service_manager_is_left_open
    theirs = listeners(tcp).tap(&:open).sockets.values.first
    bind = tcp(theirs.addr[1])
    activated = { "CHATON_ACTIVATED" => JSON.generate([bind.to_s]) }
    env = Inherited.to_env(bind.to_s => theirs.dup.tap { |copy| copy.autoclose = false })
    one = listeners(bind, env: { **env, **activated }).tap(&:open)
    assert_equal activated, one.environment
    client = TCPSocket.new("127.0.0.1", bind.port)
    assert one.close_empty
    one.close
    theirs.accept.close
  ensure
    client&.close
  end

  def test_an_inherited_socket_without_a_bind_is_logged
    first = listeners(tcp).tap(&:open)
    listeners(env: environment(first)).open
    assert_match(/an inherited socket is closed/, @output.string)
  end

  def test_variables_are_taken_out_of_the_environment
    env = { "CHATON_FDS" => "{}", "LISTEN_PID" => "1", "LISTEN_FDS" => "2", "LISTEN_FDNAMES" => "a:b", "HOME" => "/" }
    Inherited.new(env)
    assert_equal({ "HOME" => "/" }, env)
  end

  private

  # The descriptors are duplicated, so that both sides may close theirs.
  def environment(first)
    Inherited.to_env(first.sockets.transform_values do |socket|
      socket.dup.tap { |copy| copy.autoclose = false }
    end)
  end
end
