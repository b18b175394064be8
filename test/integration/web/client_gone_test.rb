# frozen_string_literal: true

require "test_helper"
require "support/mixed_load"
require "support/process_figures"
require "support/raw_client"
require "support/server"

# Resources of a client are freed when the client disconnects.
class ClientGoneTest < Minitest::Test
  include ServerTest

  THREADS = 4
  CONFIG = "workers 0\nthreads #{THREADS}..#{THREADS}\nconstants_for_tests reply_spool_bytes_max: 8 << 20".freeze
  # Of the mixed load: the first warms up, then two are compared.
  ROUNDS = 100
  # A leak of one response body for each of 200 clients of a kind would be 60 MB.
  GROWTH_KIB_MAX = 12 * 1024
  # Files of requests that have just ended; a leak would be hundreds.
  DESCRIPTORS_SLACK = 5
  UPLOADS = 200
  # Notes each request that begins; the first one waits for the file `go`.
  QUEUE_APP = <<~RUBY
    begun = Thread::Queue.new
    run(lambda do |env|
      begun << env["PATH_INFO"]
      sleep 0.001 until env["PATH_INFO"] != "/first" || File.exist?("go")
      [200, {}, [Array.new(begun.size) { begun.pop.tap { |path| begun << path } }.join(" ")]]
    end)
  RUBY
  WAITED_S = 0.2

  def test_gone_before_the_answer
    server = boot(rackup: MixedLoad::APP, config: CONFIG)
    leave(server, 20) { |client| client.write("GET /held HTTP/1.1\r\nHost: h\r\n\r\n") }
    assert_closed(server)
    assert_equal 0, server.stop
  end

  def test_a_request_whose_client_leaves_while_it_waits_is_not_begun
    server = boot(rackup: QUEUE_APP, config: "workers 0\nthreads 1..1\nweb { abort_on_close_s #{WAITED_S} }")
    first, gone, ended, = clients = queued(server, %w[/first /gone /ended /stays])
    gone.close
    ended.close_write
    waited(server)
    server.write("go", "")
    assert_equal [200, 503], [first, ended].map { |client| client.read_response.status }
    assert_equal "/first /stays", clients.last.read_response.body
    assert_equal [2, 0], server.status["workload"]["web"].values_at("aborted_total", "shed_total")
    assert_equal 0, server.stop
  end

  def test_every_request_is_begun_where_the_setting_is_off
    server = boot(rackup: QUEUE_APP, config: "workers 0\nthreads 1..1\nweb { abort_on_close_s 0 }")
    clients = queued(server, %w[/first /gone /stays])
    clients[1].close
    waited(server)
    server.write("go", "")
    assert_equal "/first /gone /stays", clients.last.read_response.body
    assert_equal 0, server.stop
  end

  def test_gone_during_the_answer
    server = boot(rackup: MixedLoad::APP, config: CONFIG)
    %w[/endless /stream /file /big].each do |path|
      leave(server, 8) { |client| client.write("GET #{path} HTTP/1.1\r\nHost: h\r\n\r\n").read_some(10) }
    end
    assert_closed(server)
    refute_match(/ERROR/, server.log)
    assert_equal 0, server.stop
  end

  def test_gone_after_the_answer
    server = boot(rackup: MixedLoad::APP, config: CONFIG)
    leave(server, 20) { |client| client.write("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n").read_response }
    opened, = assert_closed(server)
    assert_equal 20, opened
    assert_equal 0, server.stop
  end

  def test_mixed_load_leaks_nothing
    server = boot(rackup: MixedLoad::APP, config: CONFIG)
    load = MixedLoad.new(server.port)
    2.times { play(server, load) }
    before = figures_of(server)
    play(server, load)
    server.eventually("descriptors and threads are as before") do
      descriptors, threads = figures_of(server)
      descriptors <= before[0] + DESCRIPTORS_SLACK && threads <= before[1]
    end
    # What is free goes back while the server has nothing to do; what leaks never does.
    server.eventually("memory is as before") { figures_of(server).last - before.last < GROWTH_KIB_MAX }
    assert_equal 0, server.status["workload"]["web"]["panics_total"]
    assert_equal 0, server.stop
  end

  # Their files are closed with the request, not when garbage is collected.
  def test_large_uploads_hold_no_descriptors
    server = boot(rackup: MixedLoad::APP, config: CONFIG)
    upload = "u" * MixedLoad::BIG_BYTES
    most = RawClient.open(server.port) do |client|
      Array.new(UPLOADS) do
        client.write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: #{upload.size}\r\n\r\n#{upload}").read_response
        ProcessFigures.descriptors(server.pid)
      end
    end
    assert_operator most.max - most.min, :<, UPLOADS / 10
    assert_equal 0, server.stop
  end

  private

  # One request runs, the others wait in this order.
  def queued(server, paths)
    paths.each_with_index.map do |path, index|
      client = RawClient.new(server.port).write("GET #{path} HTTP/1.1\r\nHost: h\r\n\r\n")
      server.eventually("#{path} is there") { server.status["workload"]["web"]["requests_total"] == index + 1 }
      client
    end
  end

  # The server has accepted a client that came after the others had left, and they waited for long enough.
  def waited(server)
    left_at_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    before = server.status["workload"]["web"]["accepted_total"]
    RawClient.new(server.port)
    server.eventually("the server has seen them leave, and the time is over") do
      server.status["workload"]["web"]["accepted_total"] > before &&
        Process.clock_gettime(Process::CLOCK_MONOTONIC) - left_at_s > WAITED_S
    end
  end

  def play(server, load)
    load.run(rounds: ROUNDS)
    assert_closed(server)
  end

  def leave(server, count)
    count.times do |n|
      client = RawClient.new(server.port)
      yield client
      client.close(reset: n.odd?)
    end
  end

  # Waits until every body is closed, once, and no connection and no request is left.
  def assert_closed(server)
    counts = nil
    server.eventually("every body is closed") do
      counts = server.get("/counts").body.split.map(&:to_i)
      counts[0] == counts[1]
    end
    assert_equal 0, counts[2], "closed more than once"
    server.eventually("the connections are gone") do
      status = server.status["workload"]
      status["web"]["connections"].zero? && status["running"].empty?
    end
    counts
  end

  def figures_of(server)
    [ProcessFigures.descriptors(server.pid), ProcessFigures.threads(server.pid),
     ProcessFigures.resident_kib(server.pid)]
  end
end
