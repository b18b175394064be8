# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/open_metrics"
require "support/tls_files"
require "support/traces_case"

# Spans of a server that answers requests, runs jobs and reads records, as a collector gets them.
class TracesTest < Minitest::Test
  include TracesCase

  def test_one_trace_over_a_request_and_the_jobs_that_it_pushes
    server = boot_traced
    HttpClient.open(server.port) do |client|
      client.get("/orders/1?token=secret", headers: { "traceparent" => PARENT, "tracestate" => "a=1" })
    end
    spans = @collector.wait("three jobs have ended") do |found|
      found.count { |span| span.kind == :consumer } == 3 && found.any? { |span| span.kind == :server }
    end
    assert_equal [[TRACE_ID], ["a=1"]], [spans.map(&:trace_id).uniq, spans.map(&:trace_state).uniq]
    request = only(spans, :server)
    assert_equal ["GET /orders/:id", PARENT[36, 16], 0x301], request.to_a.values_at(4, 3, 11)
    expected = { "http.request.method" => "GET", "url.path" => "/orders/1", "http.route" => "/orders/:id",
                 "http.response.status_code" => 200, "server.address" => "127.0.0.1", "url.scheme" => "http",
                 "network.protocol.version" => "1.1" }
    assert_equal expected, request.attributes.slice(*expected.keys)
    pushed = only(spans, :producer, parent: request)
    assert_equal ["send default", 0x101], [pushed.name, pushed.flags]
    first = only(spans, :consumer, parent: pushed)
    assert_equal ["process default", "First", "chaton"],
                 [first.name, first["chaton.job.class"], first["messaging.system"]]
    assert_match(/\A\h{24}\z/, first["messaging.message.id"])
    assert_equal first["messaging.message.id"], pushed["messaging.message.id"]
    sent = spans.select { |span| span.kind == :producer && span.parent_id == first.span_id }
    assert_equal ["send default", "send traces"], sent.map(&:name).sort
    failed = spans.find { |span| span["chaton.job.class"] == "Second" }
    assert_equal [2, "KeyError"], [failed.status, failed["error.type"]]
    refute_includes spans.inspect, "secret"
    assert_operator request.start_ns, :<=, request.end_ns
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_one_trace_over_a_request_a_record_and_a_job_of_its_consumer
    server = boot_traced
    assert_equal 200, server.get("/click").status
    spans = @collector.wait("the jobs have ended") { |found| found.any? { |span| span["chaton.job.class"] == "Third" } }
    request = only(spans, :server)
    assert_equal ["", [request.trace_id]], [request.parent_id, spans.map(&:trace_id).uniq]
    sent = only(spans, :producer, parent: request)
    batch = only(spans, :consumer, parent: sent)
    assert_equal ["send clicks", "process clicks", 1, "g"],
                 [sent.name, batch.name, *batch.attributes.values_at("messaging.batch.message_count",
                                                                     "messaging.consumer.group.name")]
    only(spans, :producer, parent: batch)
    headers = StreamsLog.new(log_address(server)).read("clicks").first.fetch(:headers)
    assert_equal({ "own" => "1", "traceparent" => "00-#{request.trace_id}-#{sent.span_id}-01" }, headers)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_what_other_software_has_written_keeps_its_context
    contexts = %w[a b c].map { |digit| "00-#{digit * 32}-#{digit * 16}-01" }
    contexts[0] = contexts[0].sub(/01\z/, "00")
    server = boot_traced
    console(server).run("Chaton::Jobs.client.push(\"class\" => \"Third\", \"args\" => [{ \"traceparent\" => 1 }], " \
                        "\"traceparent\" => #{PARENT.dump}, \"tracestate\" => \"x=\\\"1\\\"\")")
    rows = [*contexts, contexts[1]].map { |context| ["v", nil, { "traceparent" => context }] }
    StreamsLog.new(log_address(server)).write("clicks", rows)
    spans = @collector.wait("they are read") do |found|
      found.any? { |span| span.trace_id == TRACE_ID } && seen_by_batches(found).size == 2
    end
    job = spans.find { |span| span.trace_id == TRACE_ID }
    assert_equal [:consumer, PARENT[36, 16], "x=\"1\""], [job.kind, job.parent_id, job.trace_state]
    assert_equal contexts.drop(1).map { |context| context[36, 16] }, seen_by_batches(spans)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_the_application_sees_the_requests_span_and_what_is_not_sampled_stays_so
    server = boot_traced("sample 0")
    sampled = server.get("/", headers: { "traceparent" => PARENT }).body
    assert_match(/\A00-#{TRACE_ID}-\h{16}-01\z/, sampled)
    refute_equal PARENT, sampled
    assert_match(/\A00-#{TRACE_ID}-\h{16}-00\z/,
                 server.get("/", headers: { "traceparent" => "#{PARENT[0..-2]}0" }).body)
    # A header that nobody understands begins a new trace.
    own = server.get("/", headers: { "traceparent" => "nonsense" }).body
    assert_match(/\A00-\h{32}-\h{16}-00\z/, own)
    assert_equal 200, server.get("/orders/1").status
    server.eventually("the jobs have ended") { stats(console(server)).fetch("processed") >= 3 }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
    assert_equal [sampled[36, 16]], @collector.spans.map(&:span_id)
  end

  def test_failures_and_resources
    server = boot_traced("service_name \"shop\"; headers \"x-key\" => \"own secret\"")
    %w[/fail /bad /many].each { |path| server.get(path) }
    spans = @collector.wait("three requests") { |found| found.count { |span| span.kind == :server } == 3 }
    requests = spans.select { |span| span.kind == :server }.to_h { |span| [span["url.path"], span] }
    assert_equal [2, "IOError", 500], requests["/fail"].then { |span| [span.status, *error_of(span)] }
    assert_equal [2, "503", 503], requests["/bad"].then { |span| [span.status, *error_of(span)] }
    assert_nil requests["/many"].status
    bulk = only(spans, :producer, parent: requests["/many"])
    assert_equal 2, bulk["messaging.batch.message_count"]
    assert_equal %w[shop chaton production], %w[service.name telemetry.sdk.name deployment.environment.name]
      .map { |name| bulk.resource[name] }
    assert_equal ["own secret", "application/x-protobuf"], @collector.requests.first.values_at("x-key", "content-type")
    assert_equal 0, server.stop(timeout_s: WAIT_S)
    refute_includes server.log, "own secret"
  end

  def test_a_collector_that_is_away_delays_nobody_and_what_it_misses_is_counted
    replace_collector(away: true)
    server = boot_traced("constants_for_tests traces_queue_max: 5, traces_batch_max: 2, traces_stop_s: 0.2",
                         config: "admin { bind \"unix://admin.sock\" }")
    HttpClient.open(server.port) { |client| 20.times { assert_equal 200, client.get("/").status } }
    server.wait_line(/WARN .*spans did not reach the collector of traces/)
    server.eventually("spans above the bound are counted", timeout_s: WAIT_S) { dropped(server) >= 13 }
    @collector.arrive
    @collector.wait("those that were kept arrive") { |found| found.size >= 5 }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_collector_behind_tls_is_checked
    files = TlsFiles.new(File.join(scratch, "tls"))
    context = OpenSSL::SSL::SSLContext.new
    context.add_certificate(files.write("server"), OpenSSL::PKey.read(File.read(files.path("server.key"))))
    replace_collector(tls: context)
    strange = boot(config: section)
    strange.get("/")
    strange.wait_line(/WARN .*spans did not reach the collector .*UnknownIssuer/)
    assert_equal 0, strange.stop(timeout_s: WAIT_S)
    server = boot(config: section, env: { "SSL_CERT_FILE" => files.path("ca.pem") })
    server.get("/")
    @collector.wait("a span", &:any?)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_collector_that_refuses_has_the_spans_dropped
    replace_collector(status: 401)
    server = boot_traced("", config: "admin { bind \"unix://admin.sock\" }")
    server.get("/")
    server.eventually("it is counted", timeout_s: WAIT_S) { dropped(server) == 1 }
    server.wait_line(/WARN .*spans did not reach the collector .*dropped=1 reason="it answered 401"/)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_collector_that_never_answers_delays_no_request_and_no_stop
    replace_collector(mute: true)
    server = boot_traced("constants_for_tests traces_timeout_s: 600.0, traces_stop_s: 0.2, traces_batch_max: 1")
    HttpClient.open(server.port) { |client| 5.times { assert_equal 200, client.get("/").status } }
    # Without its bounds the stop would wait for ten minutes.
    assert_equal 0, server.stop(timeout_s: WAIT_S)
    server.wait_line(/WARN .*spans were not sent before the process ended  dropped=5/)
  end

  def test_restarts_and_stops_send_what_is_left
    server = boot_traced("constants_for_tests traces_interval_s: 3000.0", workers: "web: 2, jobs: 1, streams: 1")
    count = 0
    [-> { server.control("restart") }, -> { server.stop(timeout_s: WAIT_S) }].each do |action|
      10.times { server.get("/") }
      count += 10
      action.call
      @collector.wait("all spans arrive") { |found| found.count { |span| span.kind == :server } == count }
    end
  end

  def test_log_lines_have_the_trace
    app = "require \"chaton/logger\"\nlog = Chaton::Logger.new\nrun ->(_) { log.info(\"here\"); [200, {}, []] }"
    server = launch(rackup: app, config: "log_format :json\nworkers 1\n#{section}").ready
    server.get("/", headers: { "traceparent" => PARENT })
    line = JSON.parse(server.wait_line(/"message":"here"/))
    assert_equal TRACE_ID, line.fetch("trace_id")
    assert_equal 0, server.stop(timeout_s: WAIT_S)
    refute_includes JSON.parse(server.wait_line(/"message":"ready"/)), "trace_id"
  end

  def test_the_environments_variables_count_only_with_the_block
    env = { "OTEL_EXPORTER_OTLP_ENDPOINT" => @collector.url, "OTEL_SERVICE_NAME" => "named",
            "OTEL_BSP_SCHEDULE_DELAY" => "20", "OTEL_TRACES_SAMPLER" => "parentbased_always_on" }
    silent = boot(env: env, config: "workers 0")
    assert_equal "hello", silent.get("/").body
    refute_includes threads_of(silent.pid), "chaton-traces"
    assert_equal 0, silent.stop(timeout_s: WAIT_S)
    assert_empty @collector.requests
    server = boot(env: env, config: "workers 1\ntraces { }")
    server.get("/")
    assert_equal "named", @collector.wait("a span", &:any?).first.resource["service.name"]
    refute_includes threads_of(server.pid), "chaton-traces"
    assert_includes threads_of(server.workers.first), "chaton-traces"
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  private

  def replace_collector(**options)
    @collector.close
    @collector = OtlpCollector.new(**options)
  end

  # Ids of the spans that are parents of batches, or linked.
  def seen_by_batches(spans)
    batches = spans.select { |span| span.name == "process clicks" }
    batches.flat_map { |span| [span.parent_id, *span.links] }.uniq.sort
  end

  def error_of(span) = [span["error.type"], span["http.response.status_code"]]

  def dropped(server)
    text = AdminClient.new(server.path("admin.sock")).get("/metrics").body
    OpenMetrics.new(text).value("chaton_trace_spans_total", result: "dropped").to_i
  end

  def threads_of(pid) = Dir.glob("/proc/#{pid}/task/*/comm").map { |path| File.read(path).chomp }
end
