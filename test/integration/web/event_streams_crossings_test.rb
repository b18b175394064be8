# frozen_string_literal: true

require "test_helper"
require "support/event_client"
require "support/tls_server"

# Event streams where they cross other features: encryption and HTTP/2 with kills, several names with texts that begin
# anew, slow clients with each setting, restarts with forged positions, and the limits of idle connections.
class EventStreamsCrossingsTest < Minitest::Test
  include ServerTest
  include TlsServer

  APP = <<~'RUBY'
    require "chaton"
    run(lambda do |env|
      name, data, key = env["QUERY_STRING"].split("&")
      case env["PATH_INFO"]
      when "/hello" then [200, {}, ["hello"]]
      when "/say" then [200, {}, [Chaton.broadcast(name, data, key: key).inspect]]
      when "/large" then [200, {}, [Chaton.broadcast(name, data * 1_000_000).inspect]]
      when "/tell"
        stream = nil
        Chaton::EventStream.open(name) do |one|
          stream = one
          (stream << "1").flush
          sleep 0.01 until File.exist?(data)
          (stream << "2").flush
        end
        [200, {}, [stream.superseded?.inspect]]
      else
        File.write("asked", "#{env["PATH_INFO"]}\n", mode: "a")
        Chaton::EventStream.response(env, *env["PATH_INFO"].delete_prefix("/").split(","))
      end
    end)
  RUBY

  # A client over TLS and HTTP/2.
  class Curl
    attr_reader :last_id

    def initialize(url, last_id: nil)
      id = last_id ? ["-H", "Last-Event-ID: #{last_id}"] : []
      @out = IO.popen(["curl", "-sNk", "--http2", "-D", "-", *id, url], err: File::NULL)
      @head = @out.gets("\r\n\r\n")
    end

    def http2? = @head.start_with?("HTTP/2 200")

    # @return [String, nil] the data of the next message; nil at the end
    def next
      while (line = @out.gets)
        @last_id = line[/^id: (\S+)/, 1] || @last_id
        return line.delete_prefix("data: ").chomp if line.start_with?("data: ")
      end
    end

    def close
      Process.kill(:KILL, @out.pid)
      @out.close
    end
  end

  def time_limit_s = 180

  def test_clients_over_tls_and_http2_go_on_after_a_kill_and_a_phased_restart
    server = serve("workers 1\nshutdown_timeout_s 2", rackup: APP)
    url = "https://127.0.0.1:#{port(server)}/a"
    clients = Array.new(3) { Curl.new(url) }
    assert clients.all?(&:http2?)
    over_tls(server, "/say?a&0")
    %w[KILL USR1].each_with_index do |signal, at|
      clients.each { |client| assert_equal at.to_s, client.next }
      server.signal(signal, *(server.workers.first if signal == "KILL"))
      clients.each { |client| assert_nil client.next }
      over_tls(server, "/say?a&#{at + 1}")
      clients.each(&:close)
      clients = clients.map { |client| Curl.new(url, last_id: client.last_id) }
    end
    clients.each { |client| assert_equal "2", client.next }
    assert_equal 3, server.read("asked").lines.size, "they come back without the application"
    clients.each(&:close)
    assert_equal 0, server.stop
  end

  def test_a_stream_of_several_names_gets_what_is_said_anew_also_where_it_comes_back
    server = boot(rackup: APP, config: "workers 2\nthreads 4..4\nshutdown_timeout_s 2")
    client = EventClient.new(server.port, "/a,text,b").connect
    tellers = [Thread.new { server.get("/tell?text&go").body }]
    assert_equal %w[reset 1], text_of(client, 2)
    server.get("/say?b&between")
    assert_equal %w[between], text_of(client, 1)
    client.close
    tellers << Thread.new { server.get("/tell?text&go").body }
    late = EventClient.new(server.port, "/text").connect
    assert_equal %w[reset 1], text_of(client.connect, 2)
    server.write("go", "")
    assert_equal %w[true false], tellers.map(&:value), "the first was told that there is another one"
    server.get("/say?a&after")
    assert_equal %w[2 end after], text_of(client, 3)
    server.get("/say?text&after")
    # It may have come before or after the second begin.
    texts = []
    texts.concat(text_of(late, 1)) until texts.last == "after"
    assert_equal %w[2 end after], texts.last(3)
    assert_equal 0, server.stop
  end

  %w[gap close].each do |setting|
    define_method("test_a_slow_client_gets_all_in_order_with_slow_client_#{setting}") do
      server = boot(rackup: APP, config: "workers 0\nshutdown_timeout_s 2\nlive { slow_client :#{setting} }")
      slow = EventClient.new(server.port, "/a", receive_bytes_max: 4096).connect
      fast = EventClient.new(server.port, "/a").connect
      digits = Array.new(20) { |at| (at % 10).to_s }
      digits.each do |digit|
        server.get("/large?a&#{digit}")
        assert_equal [digit, 1_000_000], fast.next.data.then { |data| [data[0], data.size] }
      end
      received = []
      ends = 0
      until received.size == digits.size
        event = slow.next
        event ? received << event.data[0] : ends += slow.connect_again && 1
      end
      assert_equal digits, received
      setting == "gap" ? assert_equal(0, ends) : assert_operator(ends, :>=, 1)
      assert_equal 2, server.read("asked").lines.size
      assert_equal 0, server.stop
    end
  end

  def test_only_genuine_positions_are_resumed_while_workers_are_replaced
    server = boot(rackup: APP, config: "workers 2\nshutdown_timeout_s 3")
    good, forged = %w[/a /a,b].map { |path| Array.new(6) { EventClient.new(server.port, path).connect } }
    connects = Hash.new(0)
    lock = Mutex.new
    readers = (good + forged).map do |client|
      Thread.new { read_until(client, "last", forged.include?(client)) { lock.synchronize { connects[client] += 1 } } }
    end
    server.signal("USR1")
    100.times { |at| server.get("/say?a&#{at}") }
    server.wait_line(/phased restart done/)
    server.eventually("all are back") { server.status["event_streams"]["open"] == 12 }
    server.get("/say?a&last")
    received = readers.map(&:value)
    assert_equal [Array.new(100, &:to_s)], received.first(6).uniq
    asked = server.read("asked").lines.map(&:chomp).tally
    assert_equal 6, asked["/a"], "they come back without the application"
    assert forged.all? { |client| connects[client].positive? }, "each was closed"
    assert_operator asked["/a,b"], :>=, 6 + connects.values_at(*forged).sum
    assert_equal 0, server.stop
  end

  def test_rules_for_idle_connections_do_not_touch_streams
    server = boot(rackup: APP, config: <<~RUBY)
      workers 0
      shutdown_timeout_s 2
      web { idle_timeout_s 1; connections_max 12 }
    RUBY
    clients = Array.new(6) { EventClient.new(server.port, "/a").connect }
    # They have waited longest, and yet others are closed.
    idle = Array.new(20) do
      RawClient.new(server.port).write(request("/hello")).tap { |one| assert_equal "hello", one.read_response.body }
    end
    assert_empty idle.first.read_all
    server.wait_line(/closed \d+ idle connections? to make room/)
    # Idle for longer than it may be.
    assert_empty idle.last.read_all
    server.get("/say?a&still")
    clients.each { |client| assert_equal "still", client.next.data }
    assert_equal 6, server.status["event_streams"]["open"]
    assert_equal 0, server.stop
  end

  private

  def over_tls(server, path)
    RawClient.open(port(server), tls: @tls.context) { |one| one.write(request(path)).read_response.body }
  end

  # @return [Array<String>] the data of the next events, or the type of those that have none
  def text_of(client, count)
    Array.new(count) { client.next }.map { |event| event.data.empty? ? event.type : event.data }
  end

  # Comes back until the last message has arrived.
  #
  # @param forges [Boolean] whether it changes its position, so that all that it missed is a gap
  def read_until(client, last, forges)
    data = []
    loop do
      event = client.next
      return data if event&.data == last
      next data << event.data if event

      client.last_id = client.last_id.dup.tap { |id| id[40] = id[40] == "A" ? "B" : "A" } if forges
      client.connect_again
      yield
    end
  end
end
