# frozen_string_literal: true

require_relative "workload_case"

# The hand-over: how many threads, who waits, what is shed.
class PoolTest < Minitest::Test
  include WorkloadCase

  def together(port, count, path = "/")
    Array.new(count) do
      Thread.new { get(port, path) }.tap { |thread| thread.report_on_exception = false }
    end
  end

  def test_blocking_requests_get_a_thread_each_up_to_the_maximum
    gate = Queue.new
    port = serve(threads: [1, 6]) do
      gate.pop
      [200, {}, ["ok"]]
    end
    clients = together(port, 8)
    eventually { @workload.status.then { |seen| [seen[:pool][:running], seen[:queue][:waiting]] == [6, 2] } }
    8.times { gate << :go }
    assert_equal ["ok"] * 8, clients.map { |client| client.value.body }
  end

  def test_what_runs_can_be_listed_from_outside
    gate = Queue.new
    port = serve do |env|
      gate.pop
      [200, {}, [env["PATH_INFO"]]]
    end
    client = together(port, 1, "/slow").first
    unit = eventually { @workload.status[:running].first }
    assert_equal "GET /slow", unit[:what]
    assert_operator unit[:age_ms], :>=, 0
    gate << :go
    client.join
  end

  def test_a_full_queue_is_answered_503_with_retry_after
    gate = Queue.new
    port = serve(threads: [1, 1], queue_limit: 2) do
      gate.pop
      [200, {}, ["ok"]]
    end
    # One by one: three that arrive at once find a queue of two.
    clients = together(port, 1)
    eventually { @workload.status[:pool][:running] == 1 }
    clients += together(port, 2)
    eventually { @workload.status[:queue][:waiting] == 2 }
    refused = get(port)
    assert_equal [503, "1"], [refused.status, refused.headers["retry-after"]]
    3.times { gate << :go }
    assert_equal [200] * 3, clients.map { |client| client.value.status }
  end

  def test_a_request_that_waited_too_long_is_shed
    gate = Queue.new
    port = serve(threads: [1, 1], queue_age_s: 0.1 * PATIENCE) do
      gate.pop
      [200, {}, ["ok"]]
    end
    running = nil
    eventually do
      # The first may have to wait too long for its thread, too.
      running = together(port, 1).first unless running&.alive?
      @workload.status[:pool][:running] == 1
    end
    assert_equal 503, get(port).status
    gate << :go
    assert_equal 200, running.value.status
  end

  def test_a_thread_that_uses_the_cpu_lets_others_in
    stop = false
    port = serve(threads: [1, 4]) do |env|
      nil until stop || env["PATH_INFO"] != "/hog"
      [200, {}, [env["PATH_INFO"]]]
    end
    hog = together(port, 1, "/hog").first
    eventually { @workload.status[:pool][:running] == 1 }
    (STRESS ? 3 : 20).times { assert_equal "/quick", get(port, "/quick").body }
    # CRuby's own time slice of 100 ms would serve them, too, but later.
    assert_operator @workload.status[:pool][:preemptions], :>, 0
  ensure
    stop = true
    assert_equal "/hog", hog.value.body
  end

  def test_units_that_wait_at_the_deadline_are_released_and_reported
    gate = Queue.new
    port = serve(threads: [1, 1]) do
      gate.pop
      [200, {}, ["ok"]]
    end
    clients = together(port, 2)
    eventually { @workload.status[:pool][:running] == 1 && @workload.status[:queue][:waiting] == 1 }
    refute @workload.stop(0.1 * PATIENCE)
    assert_includes @output.string, "still running at the end of the graceful stop"
    assert_includes @output.string, "pool_test.rb"
    @workloads.clear
    2.times { gate << :go }
    clients.each { |client| client.join rescue nil } # rubocop:disable Style/RescueModifier
  end
end
