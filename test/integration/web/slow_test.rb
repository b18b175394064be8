# frozen_string_literal: true

require "test_helper"
require "support/open_files"
require "support/process_figures"
require "support/raw_client"
require "support/server"

# Thousands of slow clients occupy no thread of the application and do not slow down others.
class SlowTest < Minitest::Test
  include ServerTest

  READERS = 2_000
  WRITERS = 2_000
  IDLE = 5_000
  # Rounds in which every slow client moves one byte.
  ROUNDS = 4
  # Far below what one client gets in that time on a busy machine, far above what one behind slow clients would.
  HELLO_PER_ROUND = 100
  ROUND_S = 5.0
  BIG_BYTES = 400_000
  # One reader in this many gets a streamed answer, which is spooled to a file.
  STREAMED = 4
  CHUNKS = 100
  UPLOAD = "0123456789"
  # Of all slow clients together: below 16 KiB for each.
  GROWTH_KIB_MAX = 64 * 1024
  THREADS_MAX = 4

  APP = <<~RUBY.freeze
    big = ("b" * #{BIG_BYTES}).freeze
    chunk = "c" * 1_000
    run(lambda do |env|
      body = case env["PATH_INFO"]
             when "/big" then [big]
             when "/stream" then Enumerator.new { |out| #{CHUNKS}.times { out << chunk } }
             when "/upload" then [env["rack.input"].read]
             else ["hello"]
             end
      [200, { "content-type" => "text/plain" }, body]
    end)
  RUBY

  # All of them ask at once, and in the end all send at once.
  CONFIG = "workers 0\nthreads 1..#{THREADS_MAX}\n" \
           "constants_for_tests reply_memory_bytes_max: 4096\nweb { queue limit: 10_000, age: 60 }".freeze

  def setup
    super
    OpenFiles.allow(12_000)
  end

  def test_slow_readers_and_writers_do_not_delay_others
    server = boot(rackup: APP, config: CONFIG)
    before = ProcessFigures.resident_kib(server.pid)
    others = ProcessFigures.threads(server.pid)
    readers, writers = crowd(server.port)
    HttpClient.open(server.port) do |neighbour|
      took_s = Array.new(ROUNDS) { |round| hello_in_round(neighbour, readers, writers, round) }
      assert_operator took_s.max, :<, ROUND_S
    end
    assert_operator ProcessFigures.threads(server.pid), :<=, others + THREADS_MAX
    assert_operator ProcessFigures.resident_kib(server.pid) - before, :<, GROWTH_KIB_MAX
    finish(readers, writers)
    @crowd.each(&:close)
    assert_equal 0, server.stop
  ensure
    @crowd&.each(&:close)
  end

  def test_idle_connections_stay_usable
    server = boot(config: CONFIG)
    before = ProcessFigures.resident_kib(server.pid)
    clients = Array.new(IDLE) { HttpClient.new(server.port).connect }
    2.times { assert_equal ["hello"], clients.map { |client| client.get("/").body }.uniq }
    assert_equal IDLE, server.status["workload"]["web"]["connections"]
    assert_operator ProcessFigures.resident_kib(server.pid) - before, :<, GROWTH_KIB_MAX
    clients.each(&:close)
    server.eventually("they are gone") { server.status["workload"]["web"]["connections"].zero? }
    assert_equal 0, server.stop
  ensure
    clients&.each(&:close)
  end

  private

  # @return [Array<Array<RawClient>>] readers that have asked, and writers in mid-head or mid-body by turns
  def crowd(port)
    @crowd = []
    readers = Array.new(READERS) do |n|
      client(port).write("GET #{(n % STREAMED).zero? ? "/stream" : "/big"} HTTP/1.1\r\nHost: h\r\n\r\n")
    end
    writers = Array.new(WRITERS) do |n|
      head = "POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: #{UPLOAD.size}\r\n"
      client(port).write(n.even? ? "#{head}\r\n" : "#{head}X-Slow: ")
    end
    [readers, writers]
  end

  def client(port)
    RawClient.new(port, receive_bytes_max: 4096).tap { |client| @crowd << client }
  end

  def hello_in_round(neighbour, readers, writers, round)
    readers.each { |client| assert_equal "HTTP"[round], client.read_some(1) }
    writers.each { |client| client.write(UPLOAD[round]) }
    begun_s = now
    HELLO_PER_ROUND.times { assert_equal "hello", neighbour.get("/").body }
    now - begun_s
  end

  # Every slow client gets what it came for once it hurries.
  def finish(readers, writers)
    writers.each_with_index do |client, n|
      rest = UPLOAD[ROUNDS..]
      client.write(n.even? ? rest : "#{rest}\r\n\r\n#{UPLOAD}")
    end
    assert_equal [UPLOAD], writers.map { |client| client.read_response.body }.uniq
    sizes = readers.each_slice(READERS / 10).map do |slice|
      slice.first(STREAMED).map { |client| client.read_response.body.size }
    end
    assert_equal [[CHUNKS * 1_000, *[BIG_BYTES] * (STREAMED - 1)]], sizes.uniq
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
