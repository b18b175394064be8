# frozen_string_literal: true

require_relative "example_test_case"
require "support/admin_client"
require "support/browser"
require "support/open_metrics"
require "support/otlp_collector"

class AllInOneExampleTest < ExampleTestCase
  def test_every_path_responds
    server = boot_example("all_in_one")
    page = get(server, "/")
    assert_equal "text/html; charset=utf-8", page["content-type"]
    assert_match(/Served by <span>[^<]*chaton/i, page.body)
    assert_equal "Hello, world!\n", get(server, "/hello").body
    assert_equal "slept 0.01 s\n", get(server, "/sleep?s=0.01").body
    assert_equal 100, get(server, "/stream").body.lines.size
    assert_equal "sent", post(server, "/echo", "sent").body
    assert_equal "404", get(server, "/nowhere").code
  end

  def test_the_status_page_describes_the_process
    server = boot_example("all_in_one")
    facts = JSON.parse(get(server, "/status.json").body)
    assert_equal server.pid, facts["pid"]
    assert_operator facts["memory_mb"], :>, 1
  end

  def test_it_runs_in_workers
    server = boot_example("all_in_one", config: "workers 2")
    assert_includes server.workers, JSON.parse(get(server, "/status.json").body)["pid"]
  end

  # Before, its consumer waited for a topic that nobody had created.
  def test_it_is_ready_at_its_first_start_and_has_its_topic
    server = boot_whole_example("all_in_one")
    topics = JSON.parse(command(server, "streams", "topics", "--json"))
    assert_equal([["events", 4]], topics.map { |topic| [topic["name"], topic["partitions"].size] })
    found = server.eventually("its streams are ready") do
      answer = AdminClient.new(server.path("admin.sock")).get("/ready?role=streams")
      answer if answer.status == 200
    end
    assert_equal 1, found.json.dig("roles", "streams", "ready_workers")
    assert_equal 0, server.stop
  end

  # Requests enqueue jobs, jobs and requests write to the stream, and its consumer counts both.
  def test_the_stream_counts_the_records_of_requests_and_jobs
    server = boot_whole_example("all_in_one")
    assert_equal({ "enqueued" => 30 }, JSON.parse(post(server, "/reports?n=30", "").body).slice("enqueued"))
    assert_equal "202", post(server, "/clicks?n=1000", "").code
    assert_equal "202", post(server, "/clicks", "").code
    server.eventually("everything is counted") do
      found = JSON.parse(get(server, "/streams.json").body)
      found["tally"] == { "click" => 1001, "report" => 30 } && found.values_at("lag", "consumed") == [0, 1031]
    end
    assert_equal [{ "group" => "tally", "lag" => 0 }], JSON.parse(command(server, "streams", "lag", "--json"))["groups"]
    assert_equal 0, server.stop
  end

  # What examples/metrics and examples/traces promise to a person who clicks once.
  def test_one_click_is_seen_in_the_metrics_of_each_engine_and_is_one_trace
    collector = OtlpCollector.new
    server = boot_whole_example("all_in_one", env: { "OTEL_EXPORTER_OTLP_ENDPOINT" => collector.url })
    assert_equal "202", post(server, "/reports?n=1", "").code
    server.eventually("each engine has counted") { counted(server) == [1.0, 1.0, 1.0] }
    expected = ["process events", "send events", "process default", "send default", "POST"]
    # Each process sends its spans at its own time.
    collector.wait("one trace from the click to the record") do |spans|
      way_back(spans, "process events").map(&:name) == expected
    end
    assert_equal 0, server.stop
  ensure
    collector&.close
  end

  # In a browser, whose page is never loaded again.
  def test_a_text_goes_on_over_a_deploy_and_the_death_of_workers
    server = boot_whole_example("all_in_one", env: { "ANSWER_WORD_S" => "0.08" })
    job = File.read(File.join(EXAMPLES, "all_in_one/app/jobs/answer_job.rb"))
    whole = job[/<<~TEXT.*?\n(.*?)\n  TEXT/m, 1].split.join(" ")
    browser = Browser.new
    browser.open("http://127.0.0.1:#{server.port}/answer")
    words = -> { browser.text("#text").split }
    server.eventually("it begins", timeout_s: 60) { words.call.size > 3 }
    browser.run("window.mine = true")
    server.signal("KILL", worker(server, "web"))
    seen = words.call.size
    server.eventually("it goes on after a kill", timeout_s: 60) { words.call.size > seen + 5 }
    server.signal("USR1")
    server.wait_line(/phased restart done/, timeout_s: 60)
    server.eventually("it is complete", timeout_s: 60) { browser.text("#state") == "complete" }
    assert_equal whole, browser.text("#text").strip
    assert browser.run("window.mine"), "the page was not loaded again"
    assert_operator browser.text("#log").scan("connected").size, :>=, 3
    # One that is opened later gets it as a whole. The old page may answer until it is there.
    seen = "window.mine ? '' : ['#state', '#text'].map((id) => document.querySelector(id)?.innerText).join(': ')"
    browser.run("location.reload()")
    server.eventually("it is there again", timeout_s: 60) { browser.run(seen).strip == "complete: #{whole}" }
    assert_empty(browser.complaints.grep_v(/ERR_(CONNECTION|INCOMPLETE|EMPTY)|favicon/))
    assert_equal 0, server.stop
  ensure
    browser&.close
  end

  private

  def worker(server, role) = server.status["workers"].find { |one| one["roles"] == [role] }["pid"]

  # @return [Array<Float>] requests, jobs and records
  def counted(server)
    page = OpenMetrics.new(AdminClient.new(server.path("admin.sock")).get("/metrics").body)
    [page.value("chaton_responses_total", class: "2xx"),
     page.value("chaton_jobs_total", class: "ReportJob", queue: "default", result: "done"),
     page.value("chaton_stream_records_total", topic: "events", group: "tally")]
  end

  # @return [Array<OtlpCollector::Span>] a span, its parent, and so on
  def way_back(spans, name)
    way = spans.select { |span| span.name == name }.take(1)
    while (parent = spans.find { |span| span.span_id == way.last&.parent_id })
      way << parent
    end
    way
  end
end
