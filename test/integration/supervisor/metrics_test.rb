# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/jobs_test_case"
require "support/open_metrics"

# /metrics of servers that answer requests and run jobs.
class MetricsTest < Minitest::Test
  include JobsTest

  WAIT_S = 60
  ADMIN = "admin { bind \"unix://admin.sock\" }\n"
  TOKEN = "0123456789abcdef"

  def kind = :sqlite

  def time_limit_s = 240

  def test_requests_are_counted_and_no_count_falls_when_a_worker_dies
    app = 'run ->(env) { [env["PATH_INFO"].delete("/").to_i, {}, []] }'
    server = boot(rackup: app, config: "workers 1\n#{ADMIN}")
    HttpClient.open(server.port) do |client|
      [200, 204, 302, 404, 500].each { |status| assert_equal status, client.get("/#{status}").status }
      client.get("/200", headers: { "X-Request-Start" => "t=#{Time.now.to_f - 5}" })
    end
    metrics = scrape(server) do |found|
      found.value("chaton_request_duration_seconds_count") == 6 && found.value("chaton_ready", role: "web") == 1 &&
        found.value("chaton_request_queue_time_seconds_sum") >= 5
    end
    counts = %w[2xx 3xx 4xx 5xx].map { |status| metrics.value("chaton_responses_total", class: status) }
    assert_equal [3, 1, 1, 1], counts
    assert_equal 1, metrics.value("chaton_workers", state: "ready")

    server.signal("KILL", server.workers.first)
    metrics = scrape(server) { |found| found.value("chaton_worker_exits_total", reason: "died") == 1 }
    assert_equal 6, metrics.value("chaton_request_duration_seconds_count")
    server.eventually("it serves", timeout_s: WAIT_S) { server.get("/200").status == 200 }
    scrape(server) { |found| found.value("chaton_responses_total", class: "2xx") == 4 }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_jobs_are_counted_by_class_and_queue
    server = boot_jobs(<<~RUBY, config: ADMIN)
      class Good
        include Chaton::Job
        def perform = nil
      end
      class Bad
        include Chaton::Job
        options retry: false
        def perform = raise("a secret")
      end
    RUBY
    console(server).run("3.times { Good.perform_async }; Bad.set(queue: \"low\").perform_async; Bad.perform_async")
    # The latency is counted last.
    metrics = scrape(server) do |found|
      found.value("chaton_job_latency_seconds_count", class: "Bad", queue: "default") == 1 &&
        found.value("chaton_job_latency_seconds_count", class: "Good", queue: "default") == 3
    end
    assert_equal 1, metrics.value("chaton_jobs_total", class: "Bad", queue: "default", result: "failed")
    assert_equal 3, metrics.value("chaton_jobs_total", class: "Good", queue: "default", result: "done")
    assert_equal 3, metrics.value("chaton_job_run_time_seconds_count", class: "Good", queue: "default")
    metrics = scrape(server) { |found| found.value("chaton_job_queue_size", queue: "low") == 1 }
    # Nobody works on this queue: the alert of waiting jobs reads how old its job gets.
    latency = { queue: "low" }
    age_s = metrics.value("chaton_job_queue_latency_seconds", **latency)
    scrape(server) { |found| found.value("chaton_job_queue_latency_seconds", **latency) > age_s + 1 }
    assert_equal 1, metrics.value("chaton_job_store_answers")
    assert_operator metrics.value("chaton_job_set_size", set: "dead"), :<=, 1
    text = admin(server).get("/metrics").body
    [store, scratch, "secret"].each { |hidden| refute_includes text, hidden }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  # Ruby tells who waits for its lock from 3.3 on.
  def test_waits_for_the_gvl_are_counted_where_ruby_reports_them
    app = "run ->(_) { until_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.05; " \
          "nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < until_s; sleep 0.01; [200, {}, []] }"
    server = boot(rackup: app, config: "workers 1\nthreads 4..4\n#{ADMIN}")
    assert_equal [200] * 8, Array.new(8) { Thread.new { server.get.status } }.map(&:value)
    reports = RUBY_VERSION.to_f >= 3.3
    metrics = scrape(server) do |found|
      found.value("chaton_responses_total", class: "2xx") == 8 &&
        (!reports || found.value("chaton_gvl_wait_seconds_count", role: "web") == 8)
    end
    waited_s = metrics.value("chaton_gvl_wait_seconds_sum", role: "web")
    reports ? assert_operator(waited_s, :>, 0) : assert_nil(waited_s)
    assert_nil metrics.value("chaton_gvl_wait_seconds_count", role: "jobs")
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_process_without_workers_has_them_too
    server = boot(config: "workers 0\n#{ADMIN}")
    assert_equal 200, server.get.status
    metrics = scrape(server) do |found|
      found.value("chaton_responses_total", class: "2xx") == 1 &&
        found.value("chaton_memory_bytes", process: "main", kind: "resident")
    end
    assert_operator metrics.value("chaton_memory_bytes", process: "main", kind: "resident"), :>, 1 << 20
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_memory_and_heap_of_all_processes_are_shown
    server = boot(config: "workers 1\n#{ADMIN}")
    names = ["main", "preloader", "admin", "worker 0"].product(%w[resident proportional private])
    value = ->(found, process, kind) { found.value("chaton_memory_bytes", process: process, kind: kind) }
    metrics = scrape(server) do |found|
      found.value("chaton_heap", worker: "0", kind: "live_slots") &&
        names.all? { |process, kind| value.call(found, process, kind) }
    end
    names.each { |process, kind| assert_operator value.call(metrics, process, kind), :>, 1 << 16 }
    assert_match(%r{\Aapplication/openmetrics-text; version=1}, admin(server).get("/metrics").headers["content-type"])
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  # A socket that a group may open is not open to all.
  def test_elsewhere_they_need_the_token
    server = boot(config: "workers 1\nadmin { bind \"unix://admin.sock?mode=0660\"; token \"#{TOKEN}\" }")
    server.eventually("it is ready", timeout_s: WAIT_S) { admin(server).get("/ready").status == 200 }
    with = ->(text) { admin(server).get("/metrics", headers: { "Authorization" => text }).status }
    assert_equal 401, admin(server).get("/metrics").status
    assert_equal "bearer", admin(server).get("/metrics").headers["www-authenticate"]
    assert_equal [401, 401], [with.call("Bearer #{TOKEN}x"), with.call("Basic #{TOKEN}")]
    assert_equal 200, with.call("Bearer #{TOKEN}")
    assert_equal 200, admin(server).get("/live").status
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    guesses = Array.new(10) { |number| Thread.new { with.call("Bearer #{number}") } }
    assert_equal [401] * 10, guesses.map(&:value)
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, :>=, 0.9, "guesses wait for each other"
    refute_includes server.log, TOKEN
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_without_a_token_others_are_refused
    server = boot(config: "workers 0\nadmin { bind \"unix://admin.sock?mode=0666\" }")
    answer = server.eventually("it answers", timeout_s: WAIT_S) { admin(server).get("/metrics") }
    assert_equal 403, answer.status
    assert_match(/need a token/, answer.json["error"])
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  private

  def admin(server) = AdminClient.new(server.path("admin.sock"))

  # Scrapes until the block is true.
  #
  # @return [OpenMetrics]
  def scrape(server)
    server.eventually("the metrics are so", timeout_s: WAIT_S) do
      found = OpenMetrics.new(admin(server).get("/metrics").body)
      found if yield(found)
    end
  end
end
