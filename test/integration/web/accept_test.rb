# frozen_string_literal: true

require "test_helper"
require "support/http_client"
require "support/server"

# Which worker accepts a new connection when one is busy.
class AcceptTest < Minitest::Test
  include ServerTest

  REQUESTS = 50

  # Well above `preempt_ms`, from which on a busy worker counts as hogged.
  HOGGED_S = 0.1

  # `/hog` computes until the file "stop" is there, and says when it has done so for long enough to be a hog.
  APP = <<~RUBY.freeze
    compute = -> { 100_000.times { |n| n * n } }
    now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
    run(lambda do |env|
      if env["PATH_INFO"] == "/hog"
        begun = now.call
        compute.call until now.call - begun > #{HOGGED_S}
        File.write("hogged.\#{Process.pid}", "")
        compute.call until File.exist?("stop")
      end
      sleep 0.01 if env["PATH_INFO"] == "/wait"
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    end)
  RUBY

  # A connection may be left to others for as long as the test may last, so that the answer is no matter of speed.
  CONFIG = "workers 2\nthreads 1..4\nconstants_for_tests accept_defer_ms: 10_000.0"

  def test_the_free_worker_takes_new_connections
    server = boot(rackup: APP, config: CONFIG)
    hog = Thread.new { server.get("/hog").body.to_i }
    hogged, = server.eventually("one is hogged") { pids_of_hogs(server, 1) }
    free = (server.workers - [hogged]).first
    answers = Array.new(REQUESTS) do
      server.eventually("it is free") { server.status["workers"].find { |one| one["pid"] == free }["running"].zero? }
      server.get.body.to_i
    end
    assert_equal({ free => REQUESTS }, answers.tally)
    assert_predicate hog, :alive?
    server.write("stop", "")
    assert_equal hogged, hog.value
    assert_equal 0, server.stop
  end

  # With nobody freer it is taken all the same.
  def test_connections_are_taken_when_every_worker_is_hogged
    server = boot(rackup: APP, config: CONFIG)
    hogs = [1, 2].map do |count|
      Thread.new { server.get("/hog").body.to_i }.tap do
        server.eventually("#{count} are hogged") { pids_of_hogs(server, count) }
      end
    end
    answers = Array.new(10) { server.get.body.to_i }
    assert_empty answers - server.workers
    server.write("stop", "")
    assert_equal server.workers.sort, hogs.map(&:value).sort
    assert_equal 0, server.stop
  end

  def test_idle_workers_share_the_connections
    server = boot(rackup: APP, config: CONFIG)
    clients = Array.new(40) { HttpClient.new(server.port).connect }
    # A worker with a request is not idle, and one that the kernel keeps from its request may pass for hogged.
    server.eventually("all are taken") { server.status["workers"].sum { |worker| worker["connections"] } == 40 }
    shares = clients.map { |client| client.get("/").body.to_i }.tally
    assert_equal server.workers.sort, shares.keys.sort
    assert_operator shares.values.min, :>=, 10
    clients.each(&:close)
    assert_equal 0, server.stop
  end

  # While one worker is hogged, the other one takes the clients. When it is free again, clients that stay connected move
  # to it, one in each accept_defer_ms, until it has four of the twelve: that is within the tolerance.
  def test_clients_that_stay_connected_move_to_a_freer_worker
    server = boot(rackup: APP, config: "workers 2\nthreads 1..4")
    hog = Thread.new { server.get("/hog").body.to_i }
    hogged, = server.eventually("one is hogged") { pids_of_hogs(server, 1) }
    clients = Array.new(12) { HttpClient.new(server.port).tap { |client| client.get("/") } }
    server.write("stop", "")
    assert_equal hogged, hog.value
    under_load(clients) do |workers|
      server.eventually("four clients have moved") { workers.count(hogged) >= 4 }
    end
    assert_equal 0, server.stop
  end

  private

  # Sends requests through all clients until the block ends, which is given the worker that answered each client last.
  def under_load(clients)
    workers = Array.new(clients.size)
    done = false
    threads = clients.each_with_index.map do |client, index|
      Thread.new do
        workers[index] = client.get("/wait").body.to_i until done
        client.close
      end
    end
    yield workers
  ensure
    done = true
    threads&.each(&:join)
  end

  # @return [Array<Integer>, nil] nil while there are fewer than that
  def pids_of_hogs(server, count)
    pids = Dir.glob("hogged.*", base: server.dir).map { |name| name.delete_prefix("hogged.").to_i }
    pids if pids.size == count
  end
end
