# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/event_client"
require "support/http2_frames"
require "support/process_figures"
require "support/server"
require "support/small_disk"

# Event streams with too many clients and names, clients that behave badly, and a log that cannot be written.
class EventStreamsTroubleTest < Minitest::Test
  include ServerTest

  APP = <<~'RUBY'
    require "chaton"
    run(lambda do |env|
      name, bytes, count = env["QUERY_STRING"].split("&")
      case env["PATH_INFO"]
      when "/hello" then [200, {}, ["hello"]]
      when "/say"
        said = Array.new(count.to_i) { |at| Chaton.broadcast(name, "#{at} #{"x" * bytes.to_i}") }
        [200, {}, [said.inspect]]
      when "/names"
        (0...Integer(bytes)).step(Integer(count || 1)) { |at| Chaton.broadcast("#{name}#{at}", at.to_s) }
        [200, {}, ["said"]]
      else
        File.write("asked", "#{env["PATH_INFO"]}\n", mode: "a")
        from, names = env["PATH_INFO"].delete_prefix("/").split("+")
        names = names ? Array.new(names.to_i) { |at| "n#{from.to_i + at}" } : [from]
        Chaton::EventStream.response(env, *names)
      end
    rescue Chaton::Error => e
      [507, {}, ["#{e.class}: #{e.message}"]]
    end)
  RUBY
  CLIENT = { "X-Forwarded-For" => "203.0.113.7" }.freeze

  def time_limit_s = 240

  def test_a_client_address_has_so_many_streams_and_then_none
    server = boot(rackup: APP, config: <<~RUBY)
      workers 0
      web { trusted_proxies "private" }
      live { client_streams_max 3 }
    RUBY
    clients = Array.new(3) { EventClient.new(server.port, "/a", headers: CLIENT).connect }
    client = EventClient.new(server.port, "/a", headers: CLIENT).connect
    assert_equal [429, "1"], [client.head.first, client.head.last["retry-after"]]
    assert_match(/client_streams_max/, client.body)
    url = "http://127.0.0.1:#{server.port}/a"
    curl = ["curl", "-s", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}"]
    assert_equal "429", Open3.capture2(*curl, "-H", "X-Forwarded-For: 203.0.113.7", url).first
    # Others are let in; a proxy that does not tell its clients is no client.
    others = [{ "X-Forwarded-For" => "203.0.113.8" }, *Array.new(4) { {} }].map do |headers|
      EventClient.new(server.port, "/a", headers: headers).connect
    end
    assert_equal [200], others.map { |one| one.head.first }.uniq
    # One that comes back is counted, too.
    clients.each { |one| one.last_id = first_id(one) }
    assert_equal 429, come_back(server, clients.last).head.first
    assert_equal 3, server.status["event_streams"]["refused"]
    left = clients.pop.tap(&:close)
    server.eventually("it is gone") { server.status["event_streams"]["open"] == 7 }
    assert_equal 200, come_back(server, left).head.first
    assert_equal 10, server.read("asked").lines.size, "it did not ask the application"
    assert_equal 0, server.stop
  end

  def test_a_hundred_thousand_names_over_http2
    server = boot(rackup: APP, config: "workers 0")
    server.get("/names?m&1") # The hub runs.
    EventClient.new(server.port, "/m").connect.close
    before = resident(server)
    paths = Array.new(1600) { |at| "/#{at * 64}+64" }
    clients = paths.each_slice(100).with_index(1).map do |slice, at|
      client = Http2Frames.new(server.port).tap { |one| one.get_all(slice) }
      server.eventually("they are open") { server.status["event_streams"]["open"] == at * 100 }
      client
    end
    grown = resident(server) - before
    assert_operator grown, :<, 100 << 20, "102,400 names"
    readers = clients.map { |client| Thread.new { drain(client) } }
    # Some of each stream, and of all together.
    server.get("/names?n&102400&13")
    server.eventually("each name's message was sent once", timeout_s: 120) do
      server.status["event_streams"]["delivered"] == 7877
    end
    assert_equal 0, server.status["event_streams"]["gaps"]
    clients.each(&:close)
    readers.each(&:join)
    server.eventually("they are gone") { server.status["event_streams"]["open"].zero? }
    assert_equal 0, server.stop
  end

  def test_storms_of_reconnects_leave_nothing_and_others_are_answered
    server = boot(rackup: APP, config: "workers 0\nthreads 2..2")
    good = EventClient.new(server.port, "/a").connect
    id = first_id(good)
    ids = ["", id, id, id, "x" * 250, id.tr("A", "B")]
    sockets = ProcessFigures.sockets(server.pid)
    storm = Array.new(6) do |n|
      Thread.new do
        300.times do |at|
          client = RawClient.new(server.port)
          client.write("GET /a HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: #{ids[n]}\r\n\r\n")
          # Some wait for the stream, some leave at once.
          client.read_some(100) if (at % 3).zero? && n.between?(1, 3)
          client.close(reset: true)
        end
      end
    end
    30.times do |at|
      assert_equal "hello", server.get("/hello").body
      server.get("/say?a&10&1")
      assert_match(/\A0 x/, good.next.data, at.to_s)
    end
    storm.each(&:join)
    server.eventually("only one is open", timeout_s: 60) { server.status["event_streams"]["open"] == 1 }
    server.eventually("their sockets are closed") { ProcessFigures.sockets(server.pid) <= sockets }
    refute_match(/ERROR|panic/, server.log)
    assert_equal 0, server.stop
  end

  def test_a_page_of_turbo_is_loaded_again_at_a_gap
    server = boot(rackup: APP, config: "workers 0\nlive { store \"sqlite://live.db\" }")
    pages = ["/a?gap=refresh", "/a"].map { |path| EventClient.new(server.port, path).connect }
    server.get("/say?a&1&1")
    # One that comes back is known by its id.
    pages.each do |page|
      assert_equal "0 x", page.next.data
      page.close
      page.connect
    end
    assert_equal 2, server.read("asked").lines.size
    FileUtils.rm_f(Dir[server.path("live.db*")])
    server.wait_line(/event streams cannot be read now/)
    # They come back once more, and ask for what they have missed in the log that has gone.
    pages.each { |page| page.tap(&:close).connect }
    server.get("/say?a&1&1")
    events = pages.map { |page| Array.new(2) { page.next }.map { |event| [event.type, event.data] } }
    assert_equal [[["gap", ""], ["message", "0 x"]]], events.uniq
    assert_equal %(<turbo-stream action="refresh"></turbo-stream>), pages.first.next.data
    server.get("/say?a&1&1")
    pages.each { |page| assert_equal "0 x", page.next.data }
    assert_equal 0, server.stop
  end

  def test_a_position_of_another_log_is_a_gap_after_the_application_was_asked
    first, other = Array.new(2) { boot(rackup: APP, config: "workers 0") }
    id = first_id(EventClient.new(first.port, "/a").connect)
    client = EventClient.new(other.port, "/a").tap { |one| one.last_id = id }.connect
    assert_equal "gap", client.next.type
    assert_equal 1, other.read("asked").lines.size
    [first, other].each { |server| assert_equal 0, server.stop }
  end

  def test_a_client_that_reads_nothing_is_closed_and_costs_no_more_than_its_queue
    server = boot(rackup: APP, config: "workers 0\nweb { write_timeout_s 2 }\nlive { history_bytes \"256M\" }")
    mute = Array.new(20) { EventClient.new(server.port, "/a", receive_bytes_max: 4096).connect }
    fast = EventClient.new(server.port, "/a").connect
    before = resident(server)
    20.times { |at| server.get("/say?a&2000000&2") && fast.take(2) && at }
    # Each has a megabyte or one message waiting, and what the sockets hold.
    assert_operator resident(server) - before, :<, 120 << 20
    server.eventually("they are closed", timeout_s: 60) { server.status["event_streams"]["open"] == 1 }
    mute.each(&:close)
    assert_equal 0, server.stop
  end

  def test_a_stream_over_http2_whose_client_opens_no_window_is_ended
    server = boot(rackup: APP, config: "workers 0\nweb { write_timeout_s 1 }")
    client = Http2Frames.new(server.port).tap { |one| one.get_all(%w[/a /b]) }
    server.eventually("they are open") { server.status["event_streams"]["open"] == 2 }
    # One of the two takes what it gets.
    client.open_window(0, 1 << 20)
    client.open_window(3, 1 << 20)
    20.times { server.get("/say?a&1000&1") }
    server.eventually("one is ended") { server.status["event_streams"]["open"] == 1 }
    ends = []
    ends << client.next_frame until ends.last == [Http2Frames::RESET, 1]
    server.get("/say?b&1000&1")
    nil until client.next_frame == [Http2Frames::DATA, 3]
    client.close
    assert_equal 0, server.stop
  end

  def test_a_stream_that_cannot_begin_on_a_full_disk_ends_so_that_its_client_comes_back
    SmallDisk.open(megabytes: 4) do |dir|
      ballast = SmallDisk.fill(dir)
      server = boot(rackup: APP, config: "workers 0\nlive { store \"sqlite://#{dir}/live.db\" }")
      begins = -> { EventClient.new(server.port, "/a").connect }
      early = begins.call
      assert_equal 200, early.head.first
      assert_match(/\Aretry: [234]\d{3}\n\n\z/, early.body)
      server.wait_line(/event streams cannot begin now: .*live.db/)
      File.delete(ballast)
      server.eventually("one begins") { begins.call.head.last["transfer-encoding"] == "chunked" }
      assert_equal 0, server.stop
    end
  end

  def test_a_full_disk_keeps_streams_open_and_new_messages_flow
    [0, 2].each do |workers|
      SmallDisk.open(megabytes: 6) do |dir|
        server = boot(rackup: APP, config: "workers #{workers}\nlive { store \"sqlite://#{dir}/live.db\" }")
        clients = Array.new(1 + (3 * workers)) { EventClient.new(server.port, "/a").connect }
        # More than the disk holds: the log makes room, with a gap if it had to begin anew.
        40.times do |at|
          assert_equal "[true]", server.get("/say?a&500000&1").body, at.to_s
          clients.each { |client| assert_equal 500_002, said_to(client).bytesize }
        end
        ballast = SmallDisk.fill(dir)
        said = Array.new(10) { server.get("/say?a&300000&1") }
        errors = said.reject { |one| one.status == 200 }
        assert(errors.all? { |one| one.body.match?(/\AChaton::StoreError.*live.db/) }, errors.map(&:body).inspect)
        (10 - errors.size).times { clients.each { |client| said_to(client) } }
        File.delete(ballast)
        assert_equal "[true]", server.get("/say?a&10&1").body
        clients.each { |client| assert_equal "0 xxxxxxxxxx", said_to(client) }
        refute_match(/ERROR|panic/, server.log)
        assert_equal 0, server.stop
      end
    end
  end

  private

  # A server that stops closes its streams within half of this time.
  def boot(config:, **rest) = super(config: "shutdown_timeout_s 2\n#{config}", **rest)

  def come_back(server, client)
    EventClient.new(server.port, "/a", headers: CLIENT).tap { |one| one.last_id = client.last_id }.connect
  end

  # @return [String] the next one behind gaps
  def said_to(client)
    loop do
      event = client.next
      return event.data unless event.type == "gap"
    end
  end

  def first_id(client) = client.chunk[/^id: (\S+)/, 1]

  def resident(server) = ProcessFigures.resident_kib(server.pid) << 10

  # Until it is closed.
  def drain(client)
    client.open_window(0, 1 << 30)
    100.times { |at| client.open_window((2 * at) + 1, 1 << 20) }
    loop { client.next_frame }
  rescue IOError, SystemCallError
    nil
  end
end
