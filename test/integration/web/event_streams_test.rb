# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/admin_client"
require "support/event_client"
require "support/open_metrics"
require "support/process_figures"
require "support/tls_server"

# Open streams of server-sent events, which hold no thread of Ruby.
class EventStreamsTest < Minitest::Test
  include ServerTest
  include TlsServer

  APP = <<~'RUBY'
    require "chaton"
    require "json"
    run(lambda do |env|
      name, event, key = env["QUERY_STRING"].split("&").map { |part| part unless part.empty? }
      case env["PATH_INFO"]
      when "/say" then [200, {}, [Chaton.broadcast(name, env["rack.input"].read.force_encoding("UTF-8"),
                                                   event: event, key: key).inspect]]
      when "/many"
        Integer(event).times { |at| Chaton.broadcast(name, at.to_s) }
        [200, {}, ["said"]]
      when "/bad" then [200, {}, [begin
        Chaton.broadcast("a\nb", "")
      rescue ArgumentError => e
        e.message
      end]]
      when "/end"
        Chaton::EventStream.disconnect(name)
        [200, {}, ["ended"]]
      when "/pid" then [200, {}, [Process.pid.to_s]]
      else
        File.write("asked", "#{env["PATH_INFO"]}\n", mode: "a")
        next [204, {}, []] if File.exist?("forbidden")
        Chaton::EventStream.response(env, *env["PATH_INFO"].delete_prefix("/").split(","), max_age: event&.to_f)
      end
    end)
  RUBY

  def test_a_message_goes_to_the_streams_of_its_name_and_holds_no_thread
    server = boot(rackup: APP, config: "workers 0\nthreads 1..1")
    clients = %w[/a /a,b /b].map { |path| EventClient.new(server.port, path).connect }
    status, headers = clients.first.head
    assert_equal [200, "text/event-stream", "no-cache, no-transform", "no"],
                 [status, *headers.values_at("content-type", "cache-control", "x-accel-buffering")]
    assert_equal "true", say(server, "a", "one\ntwo")
    assert_equal "true", say(server, "b", "ü", event: "state")
    assert_equal "true", say(server, "a", "three")
    assert_equal %W[one\ntwo three], clients[0].take(2)
    assert_equal %W[one\ntwo ü three], clients[1].take(3)
    assert_equal ["state", "ü"], clients[2].next.to_a.drop(1)
    assert_match(/must not contain CR, LF or NUL/, server.get("/bad").body)
    # Clients that leave are noticed at once.
    clients.each(&:close)
    server.eventually("the connections are gone") { server.status["workload"]["web"]["connections"].zero? }
    assert_equal 0, server.stop
  end

  def test_a_message_goes_to_all_workers_in_one_order
    server = boot(rackup: APP, config: "workers 2")
    clients = Array.new(12) { EventClient.new(server.port, "/a").connect }
    writers = Array.new(4) { |n| Thread.new { 100.times { |at| say(server, "a", "#{n} #{at}") } } }
    received = clients.map { |client| client.take(400) }
    writers.each(&:join)
    assert_equal 1, received.uniq.size, "all clients get all messages in the same order"
    4.times { |n| assert_equal(Array.new(100) { |at| "#{n} #{at}" }, received.first.grep(/\A#{n} /)) }
    assert_equal 0, server.stop
  end

  def test_a_second_message_with_the_same_key_is_ignored
    server = boot(rackup: APP, config: "workers 0")
    client = EventClient.new(server.port, "/a").connect
    assert_equal "true", say(server, "a", "one", key: "k")
    assert_equal "false", say(server, "a", "two", key: "k")
    say(server, "a", "three")
    assert_equal %w[one three], client.take(2)
  end

  def test_large_messages_and_a_client_that_does_not_read
    server = boot(rackup: APP, config: "workers 0\nlive { history_bytes \"64M\" }")
    slow = EventClient.new(server.port, "/a", receive_bytes_max: 4096).connect
    fast = EventClient.new(server.port, "/a").connect
    texts = Array.new(24) { |at| at.to_s.rjust(2, "0") * 524_288 }
    texts.each do |text|
      say(server, "a", text)
      assert_equal text, fast.next.data
    end
    # What waited for it was bounded; the rest comes from the log.
    assert_equal texts, slow.take(texts.size)
    assert_equal 0, server.stop
  end

  def test_a_client_that_has_missed_what_the_log_has_deleted_gets_a_gap
    server = boot(rackup: APP, config: "workers 0\nconstants_for_tests history_messages: 100")
    client = EventClient.new(server.port, "/a", receive_bytes_max: 4096).connect
    # As much as fits into the buffers of the sockets, and more than waits for one client.
    8.times { say(server, "a", "x" * 1_000_000) }
    server.get("/many?a&3000")
    events = []
    events << client.next until events.last&.data == "2999"
    assert_equal 1, events.count { |event| event.type == "gap" }
    numbers = events.map(&:data).grep(/\A\d/).map(&:to_i)
    assert_equal numbers, numbers.sort.uniq
  end

  def test_streams_over_tls_and_http2_are_not_compressed
    server = serve("workers 0\nweb { compress true }", rackup: APP)
    curl = ["curl", "-sNk", "-H", "Accept-Encoding: gzip", "https://127.0.0.1:#{port(server)}/a"]
    streams = %w[--http1.1 --http2].map do |version|
      head, = Open3.capture2(*curl, version, "--head")
      assert_match(%r{\AHTTP/\S+ 200.*^content-type: text/event-stream}m, head)
      refute_match(/content-encoding/i, head)
      out = Open3.popen2(*curl, version)[1]
      assert_match(/\Aretry: \d+\nid: \S+\n\n\z/, Array.new(3) { out.gets }.join)
      out
    end
    server.eventually("both are subscribed") { server.status["workload"]["web"]["connections"] == 2 }
    RawClient.open(port(server), tls: @tls.context) do |client|
      client.write("POST /say?a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello").read_response
    end
    streams.each { |out| assert_match(/\Aid: \S+\ndata: hello\n\n\z/, Array.new(3) { out.gets }.join) }
    # They end with the server, which waits for them for as long as a part of its stop.
    assert_equal 0, server.stop
    streams.each { |out| out.each_line { |line| assert_includes ["\n", ":\n"], line } }
  end

  def test_a_phased_restart_closes_the_streams_of_the_old_worker_with_a_proper_end
    server = boot(rackup: APP, config: "workers 1")
    clients = Array.new(20) { EventClient.new(server.port, "/a").connect }
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    clients.each { |client| assert_nil client.next }
    assert(clients.all? { |client| client.retry_ms.between?(200, 1200) })
    refute_match(/ERROR|WARN|gave up/, server.log)
    assert_equal 0, server.stop
  end

  def test_every_client_gets_every_message_once_and_in_order_over_kills_and_phased_restarts
    server = boot(rackup: APP, config: "workers 2\nshutdown_timeout_s 4")
    clients = Array.new(30) { |at| EventClient.new(server.port, "/#{%w[a b c][at % 3]}").connect }
    readers = clients.map { |client| Thread.new { read_until(client, "last") } }
    said = Thread.new do
      200.times do |at|
        %w[a b c].each { |name| say_again(server, name, at.to_s, "k#{at}") }
        sleep 0.02
      end
    end
    3.times do |killed|
      server.eventually("a worker to kill") { server.workers.size == 2 }
      server.signal("KILL", server.workers.first)
      server.eventually("it is missed") { server.log.scan(/worker (?:died|did not become ready)/).size == killed + 1 }
    end
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    said.join
    asked = server.read("asked").lines.size
    %w[a b c].each { |name| say_again(server, name, "last", "last") }
    received = readers.map(&:value)
    assert_equal [Array.new(200, &:to_s)], received.uniq
    assert_operator asked, :<=, clients.size + 5, "clients come back without the application"
    assert_equal 0, server.stop
  end

  def test_a_position_is_valid_for_its_own_request_only
    server = boot(rackup: APP, config: "workers 0")
    cookie = { "Cookie" => "session=me" }
    client = EventClient.new(server.port, "/a", headers: cookie).connect
    say(server, "a", "one")
    client.next
    good = client.last_id
    client.close
    say(server, "a", "two")
    assert_equal ["two", 1], come_back(server, "/a", good, cookie), "the application is not asked"
    forged = good.dup.tap { |id| id[40] = id[40] == "A" ? "B" : "A" }
    refused = [
      ["/a", good, {}], ["/a?x", good, cookie], ["/a", good, { "Cookie" => "session=you" }], ["/a", forged, cookie],
      ["/a", "x" * 257, cookie], ["/a", good, { **cookie, "Origin" => "https://elsewhere" }], ["/b", good, cookie]
    ]
    refused.each.with_index(2) do |(path, id, headers), asked|
      come_back(server, path, id, headers, wait: false)
      server.eventually("#{path} #{id} #{headers} asks") { server.read("asked").lines.size == asked }
    end
    # One whose position was genuine goes on where it was once the application has let it in.
    assert_equal "two", come_back(server, "/a", good, { "Cookie" => "session=new" }).first
    assert_equal "gap", EventClient.new(server.port, "/a").tap { |one| one.last_id = forged }.connect.next.type
    assert_equal 0, server.stop
  end

  def test_streams_of_a_name_end_everywhere_and_their_clients_ask_again
    server = boot(rackup: APP, config: "workers 2")
    clients = Array.new(10) { EventClient.new(server.port, "/a,user").connect }
    other = EventClient.new(server.port, "/a").connect
    say(server, "a", "one")
    clients.each { |client| assert_equal "one", client.next.data }
    server.get("/end?user")
    clients.each { |client| assert_nil client.next }
    asked = server.read("asked").lines.size
    assert_equal 200, clients[0].connect.head.first
    server.write("forbidden", "")
    assert_equal 204, clients[1].connect.head.first
    assert_equal asked + 2, server.read("asked").lines.size
    say(server, "a", "two")
    assert_equal %w[two two], [clients[0].next.data, other.take(2).last]
    # Once it was let in, it comes back without the application again.
    clients[0].close
    assert_equal 200, clients[0].connect.head.first
    assert_equal 0, server.stop
  end

  def test_after_its_time_a_client_has_to_ask_again
    server = boot(rackup: APP, config: "workers 0")
    client = EventClient.new(server.port, "/a?a&1").connect
    say(server, "a", "one")
    assert_equal "one", client.next.data
    assert_nil client.next
    say(server, "a", "two")
    assert_equal "two", client.connect.next.data
    assert_equal 2, server.read("asked").lines.size
  end

  def test_a_comment_is_sent_when_there_is_nothing_else
    server = boot(rackup: APP, config: "workers 0\nlive { ping_s 0.2 }")
    client = EventClient.new(server.port, "/a").connect
    assert_match(/\Aretry: \d+\nid: \S+\n\n\z/, client.chunk)
    3.times { assert_equal ":\n\n", client.chunk }
  end

  def test_metrics_status_and_page_tell_what_the_streams_do
    server = boot(rackup: APP, config: <<~RUBY)
      workers 2
      constants_for_tests history_messages: 300
      admin { bind "unix://admin.sock" }
    RUBY
    assert_equal 0, live_metrics(server)["chaton_event_stream_deliveries_total"]
    refute_match(/event streams/, status_text(server))
    clients = Array.new(6) { EventClient.new(server.port, "/a,b").connect }
    slow = EventClient.new(server.port, "/a", receive_bytes_max: 4096).connect
    server.eventually("they are open") { live_metrics(server)["chaton_event_streams"] == 7 }
    8.times { say(server, "a", "x" * 1_000_000) }
    server.get("/many?b&10")
    clients.each { |client| client.take(18) }
    found = server.eventually("one is behind") do
      live_metrics(server).then { |all| all if all["chaton_event_stream_lag"].positive? }
    end
    assert_operator found["chaton_event_stream_lag"], :<=, 18
    assert_equal 18, found["chaton_event_stream_history_messages"]
    assert_in_delta 8_000_030, found["chaton_event_stream_history_bytes"], 10
    assert_includes (6 * 18)..((6 * 18) + 8), found["chaton_event_stream_deliveries_total"]
    assert_match(/^event streams: 7 open  1\d\d events sent  0 gaps  the slowest is \d+ messages behind  history of 18/,
                 status_text(server))
    server.get("/many?a&3000")
    events = [slow.next]
    events << slow.next until events.last.data == "2999"
    clients.each(&:close)
    found = server.eventually("one is open, and up to date") do
      found = live_metrics(server)
      found if found.values_at("chaton_event_streams", "chaton_event_stream_lag") == [1, 0]
    end
    assert_operator found["chaton_event_stream_gaps_total"], :>=, 1
    assert_equal 0, server.stop
  end

  def test_nothing_is_made_without_use_and_a_removed_log_is_a_gap
    server = boot(rackup: APP, config: "workers 0\nlive { store \"sqlite://live.db\" }")
    server.get("/pid")
    assert_empty Dir[server.path("live.db*")]
    refute_includes threads(server), "chaton-live"
    client = EventClient.new(server.port, "/a").connect
    # A thread gives itself its name.
    server.eventually("the hub's thread runs") { threads(server).include?("chaton-live") }
    say(server, "a", "one")
    assert_equal "one", client.next.data
    FileUtils.rm_f(Dir[server.path("live.db*")])
    server.wait_line(/event streams cannot be read now: .*live.db was removed/)
    say(server, "a", "two")
    assert_equal "gap", client.next.type
    assert_equal "two", client.next.data
  end

  private

  # A server that stops closes its streams within half of this time.
  def boot(config:, **rest) = super(config: "shutdown_timeout_s 2\n#{config}", **rest)

  def say(server, name, text, event: nil, key: nil)
    RawClient.open(server.port) do |client|
      head = "POST /say?#{[name, event, key].join("&")} HTTP/1.1\r\nHost: h\r\nContent-Length: #{text.bytesize}"
      client.write("#{head}\r\n\r\n#{text}").read_response.body
    end
  end

  # Until it is said: a worker may be killed before it answers, which the key makes harmless.
  def say_again(server, name, text, key)
    say(server, name, text, key: key)
  rescue SystemCallError, IOError
    retry
  end

  # @return [Array<String>] the data of all events up to the last one, over any number of connections
  def read_until(client, last)
    data = []
    loop do
      event = client.next
      return data if event&.data == last

      event ? data << event.data : client.connect_again
    end
  end

  # @return [Array] the next message, and how often the application was asked
  def come_back(server, path, id, headers, wait: true)
    client = EventClient.new(server.port, path, headers: headers)
    client.last_id = id
    client.connect
    [wait && client.next.data, server.read("asked").lines.size]
  ensure
    client.close
  end

  # @return [Hash{String=>Numeric}] of all workers
  def live_metrics(server)
    metrics = OpenMetrics.new(AdminClient.new(server.path("admin.sock")).get("/metrics").body)
    samples = metrics.samples.select { |(name, _), _| name.start_with?("chaton_event_stream") }
    samples.group_by { |(name, _), _| name }.transform_values { |found| found.sum(&:last) }
  end

  def status_text(server) = server.run_command("status").first

  def threads(server) = Dir["/proc/#{server.pid}/task/*/comm"].map { |path| File.read(path).chomp }
end
