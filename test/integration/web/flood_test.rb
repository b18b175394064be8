# frozen_string_literal: true

require "test_helper"
require "support/open_files"
require "support/process_figures"
require "support/raw_client"
require "support/server"

# More requests than the queue can hold.
class FloodTest < Minitest::Test
  include ServerTest

  QUEUE_LIMIT = 100
  THREADS = 2
  FLOOD = 1_500
  # Were all of them kept, they would be 90 MB.
  BODY_BYTES = 60_000
  ROUNDS = 3
  RETRY_AFTER_S = 7
  # The queue (6 MB), as many buffers of connections about to be closed, and what malloc keeps.
  GROWTH_KIB_MAX = 48 * 1024
  # From the first flood, when malloc has its memory, to the last.
  LATER_GROWTH_KIB_MAX = 12 * 1024

  # Holds every upload until the file "open" is there.
  APP = <<~RUBY
    run(lambda do |env|
      size = env["rack.input"].read.size
      sleep 0.01 until size.zero? || File.exist?("open")
      [200, { "content-type" => "text/plain" }, [size.to_s]]
    end)
  RUBY

  CONFIG = <<~RUBY.freeze
    threads #{THREADS}..#{THREADS}
    web do
      queue limit: #{QUEUE_LIMIT}, age: 600
      constants_for_tests retry_after_s: #{RETRY_AFTER_S}
      timeout 0
    end
    # What waits to be collected is bounded by this, and not what is tested here.
    memory { eden "8M" }
  RUBY

  def setup
    super
    OpenFiles.allow(4 * FLOOD)
  end

  def test_requests_beyond_the_queue_get_503_and_memory_recovers
    server = boot(rackup: APP, config: CONFIG)
    before = ProcessFigures.resident_kib(server.pid)
    grown = Array.new(ROUNDS) do
      flood(server)
      assert_equal ["0"], Array.new(200) { server.get.body }.uniq
      ProcessFigures.resident_kib(server.pid) - before
    end
    assert_operator grown.max, :<, GROWTH_KIB_MAX
    # What is free goes back while the server has nothing to do; what leaks never does.
    server.eventually("memory recovers") do
      ProcessFigures.resident_kib(server.pid) - before - grown.first < LATER_GROWTH_KIB_MAX
    end
    assert_equal 0, server.stop
  end

  # Bytes count as well as requests: a few large ones fill the queue too.
  def test_the_queue_is_bounded_by_bytes
    config = "#{CONFIG}constants_for_tests queue_bytes_max: 64 << 10"
    server = boot(rackup: APP, config: config)
    clients = busy(server) + uploads(server, 20)
    refused = first_answers(clients, 20 - 1)
    assert_equal [503], refused.map(&:status).uniq
    FileUtils.touch(server.path("open"))
    served = first_answers(clients, THREADS + 1)
    assert_equal [200], served.map(&:status).uniq
    assert_equal 0, server.stop
  ensure
    clients&.each(&:close)
  end

  # A connection that was shed is closed; those that were not keep theirs.
  def test_served_clients_keep_their_connections
    server = boot(rackup: APP, config: CONFIG)
    clients = busy(server) + uploads(server, QUEUE_LIMIT * 2)
    refused = first_answers(clients, QUEUE_LIMIT)
    assert_equal ["close"], refused.map { |answer| answer.headers["connection"] }.uniq
    FileUtils.touch(server.path("open"))
    assert_equal [BODY_BYTES.to_s], clients.map { |client| client.read_response.body }.uniq
    again = clients.first(QUEUE_LIMIT / 2).each { |client| client.write(upload) }
    assert_equal [BODY_BYTES.to_s], again.map { |client| client.read_response.body }.uniq
    clients.each(&:close)
    assert_equal 0, server.stop
  ensure
    clients&.each(&:close)
  end

  private

  def flood(server)
    clients = busy(server) + uploads(server, FLOOD)
    refused = first_answers(clients, FLOOD - QUEUE_LIMIT)
    said = refused.map { |answer| [answer.status, answer.headers["retry-after"]] }
    assert_equal [[503, RETRY_AFTER_S.to_s]], said.uniq
    FileUtils.touch(server.path("open"))
    served = first_answers(clients, QUEUE_LIMIT + THREADS)
    assert_equal [[200, BODY_BYTES.to_s]], served.map { |answer| [answer.status, answer.body] }.uniq
    File.delete(server.path("open"))
  ensure
    clients&.each(&:close)
  end

  # @return [Array<RawClient>] one for each thread of the pool, which it holds
  def busy(server)
    Array.new(THREADS) do |n|
      uploads(server, 1).first.tap do
        server.eventually("one more thread is busy") { server.status["workload"]["running"].size == n + 1 }
      end
    end
  end

  def uploads(server, count) = Array.new(count) { RawClient.new(server.port).write(upload) }

  def upload
    @upload ||= "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: #{BODY_BYTES}\r\n\r\n#{"x" * BODY_BYTES}"
  end

  # The first that come; their clients are taken off the list.
  def first_answers(clients, count)
    answers = []
    while answers.size < count
      ready, = IO.select(clients, nil, nil, Server::WAIT_S)
      raise "#{answers.size} answers, no more of #{count} within #{Server::WAIT_S} s" unless ready
      ready.each do |client|
        answers << client.read_response
        client.close
        clients.delete(client)
      end
    end
    answers
  end
end
