# frozen_string_literal: true

require "test_helper"
require "chaton/server"
require "net/http"

class ServerTest < Minitest::Test
  SIGNALS = %w[INT TERM QUIT HUP USR1 USR2 TTIN TTOU TSTP].freeze

  def test_it_serves_and_stops_and_leaves_nothing_behind
    before = traps
    Dir.mktmpdir do |folder|
      Dir.chdir(folder) do
        server = Chaton::Server.new(->(env) { [200, {}, ["at #{env["PATH_INFO"]}"]] }).start
        assert_equal "at /here", Net::HTTP.get(URI("http://127.0.0.1:#{server.port}/here"))
        assert_equal before, traps
        port = server.port
        assert server.stop
        assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
        assert_empty Dir.children(folder)
      end
    end
  end

  def test_several_at_once_and_one_again
    servers = %w[one two].map { |name| Chaton::Server.new(->(_) { [200, {}, [name]] }).start }
    assert_equal(%w[one two], servers.map { |server| get(server) })
    assert servers.first.stop
    assert_equal "two", get(servers.last)
    assert_equal "one", get(servers.first.start)
    error = assert_raises(Chaton::Error) { servers.first.start }
    assert_match(/runs already/, error.message)
    servers.each(&:stop)
  end

  def test_a_running_request_is_finished
    begun = Queue.new
    go = Queue.new
    server = Chaton::Server.new(->(_) { begun << 1 and go.pop and [200, {}, ["done"]] }).start
    client = Thread.new { get(server) }
    begun.pop
    stop = Thread.new { server.stop }
    go << 1
    assert_equal "done", client.value
    assert stop.value
  end

  def test_one_that_could_not_listen_starts_later
    taken = TCPServer.new("127.0.0.1", 0)
    server = Chaton::Server.new(->(_) { [200, {}, ["there"]] }, port: taken.local_address.ip_port)
    assert_raises(Chaton::BindError) { server.start }
    taken.close
    assert_equal "there", get(server.start)
    assert server.stop
  end

  # As a system test does, without a browser.
  def test_capybara_starts_it
    needs_gems "capybara"
    require "chaton/capybara"
    former = Capybara.server
    Capybara.server = :chaton
    server = Capybara::Server.new(->(env) { [200, {}, ["as #{env["SERVER_SOFTWARE"]}"]] }).boot
    body = Net::HTTP.get(URI("http://#{server.host}:#{server.port}/"))
    assert_match(/\Aas chaton/i, body)
  ensure
    Capybara.server = former if former
  end

  def test_a_wrong_setting_is_a_sentence
    error = assert_raises(Chaton::ConfigError) { Chaton::Server.new(->(_) {}, threads: "many") }
    assert_match(/threads must be/, error.message)
    error = assert_raises(Chaton::ConfigError) { Chaton::Server.new(->(_) {}, thread: 3) }
    assert_match(/takes options of the configuration, not thread; did you mean threads\?\z/, error.message)
  end

  private

  def get(server) = Net::HTTP.get(URI("http://#{server.host}:#{server.port}/"))

  def traps = SIGNALS.to_h { |name| [name, trap(name, "DEFAULT").tap { |former| trap(name, former || "DEFAULT") }] }
end
