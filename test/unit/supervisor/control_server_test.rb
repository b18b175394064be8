# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require "chaton/control"
require "chaton/supervisor/control_server"
require "chaton/supervisor/control_commands"
require "chaton/telemetry/log"
require "support/open_files"

class ControlServerTest < Minitest::Test
  # What a controller answers.
  class Controller
    attr_reader :calls

    def initialize
      @calls = []
    end

    def status = { state: :running }

    def stop
      @calls << :stop
      nil
    end

    def restart = "the server is already stopping"
  end

  def setup
    @dir = Dir.mktmpdir
    @path = File.join(@dir, "tmp/control.sock")
    @output = StringIO.new
    @controller = Controller.new
    @server = open_server
    @poked, @poke = IO.pipe
    @stop = false
    @ahead_s = 0
    @thread = Thread.new { serve }
  end

  def teardown
    @stop = true
    @poke.close
    @thread.join
    @server.close
    FileUtils.remove_entry(@dir)
  end

  def test_a_command_is_answered
    answer = client.call("status")
    assert_equal "running", answer["state"]
    assert_equal Process.pid, client.call("stop")["pid"]
    assert_equal [:stop], @controller.calls
  end

  def test_a_refusal_is_an_error_with_its_reason
    error = assert_raises(Chaton::ControlError) { client.call("restart") }
    assert_equal "the server is already stopping", error.message
    assert_match(/unknown command "dance"; known: status, stop/,
                 assert_raises(Chaton::ControlError) { client.call("dance") }.message)
  end

  def test_an_invalid_request_is_refused
    assert_match(/not JSON/, ask("nonsense\n"))
    assert_match(/not a JSON object/, ask("[1]\n"))
    assert_match(/longer than/, ask("x" * 5000))
  end

  def test_only_the_owner_may_connect
    assert_equal 0o600, File.stat(@path).mode & 0o777
  end

  def test_a_silent_client_is_ended
    UNIXSocket.open(@path) do |socket|
      other = Thread.new { client.call("status") }
      assert_equal "running", other.value["state"]
      @ahead_s = Chaton::Supervisor::ControlConnection::LIFETIME_S + 1
      @poke.write(".")
      assert_nil socket.gets
    end
  end

  def test_without_a_descriptor_a_client_waits_and_nothing_spins
    server = Chaton::Supervisor::ControlServer.new("#{@path}.2", log: Chaton::Telemetry::Log.new(io: @output))
    server.open { { ok: true } }
    UNIXSocket.open("#{@path}.2") do |socket|
      OpenFiles.none { server.readable(server.ios.first) }
      assert_empty server.ios
      server.tick(server.due_at)
      server.readable(server.ios.first)
      socket.write("{\"command\":\"status\"}\n")
      server.readable(server.ios.last)
      assert_equal "{\"ok\":true}\n", socket.gets
    end
  ensure
    server.close
  end

  def test_a_second_server_leaves_it_alone
    second = open_server
    second.close
    assert_path_exists @path
    assert_match(/belongs to another running server/, @output.string)
  end

  def test_a_file_left_behind_is_replaced
    stale = File.join(@dir, "stale.sock")
    UNIXServer.new(stale).close
    server = Chaton::Supervisor::ControlServer.new(stale, log: Chaton::Telemetry::Log.new(io: @output))
    server.open { {} }
    refute_empty server.ios
    server.close
    refute_path_exists stale
  end

  def test_an_unusable_path_is_logged
    path = "/proc/no/such.sock"
    Chaton::Supervisor::ControlServer.new(path, log: Chaton::Telemetry::Log.new(io: @output)).open { {} }
    assert_match(/no control socket/, @output.string)
  end

  def test_a_missing_server_is_an_error_with_a_message
    error = assert_raises(Chaton::ControlError) { Chaton::Control::Client.new("#{@path}.no").call("status") }
    assert_match(/no server listens at/, error.message)
  end

  private

  def open_server
    server = Chaton::Supervisor::ControlServer.new(@path, log: Chaton::Telemetry::Log.new(io: @output))
    server.open(&Chaton::Supervisor::ControlCommands.new(@controller).method(:call))
    server
  end

  def serve
    until @stop
      ready, writable = IO.select([*@server.ios, @poked], @server.writers)
      @poked.read_nonblock(1, exception: false) if ready.delete(@poked)
      ready.each { |io| @server.readable(io) }
      writable.each { |io| @server.writable(io) }
      @server.tick(Chaton::Supervisor::EventLoop.now_s + @ahead_s)
    end
  end

  def client
    Chaton::Control::Client.new(@path)
  end

  def ask(text)
    UNIXSocket.open(@path) do |socket|
      socket.write(text)
      socket.gets
    end
  end
end
