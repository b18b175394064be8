# frozen_string_literal: true

require_relative "workload_case"
require "support/otlp_collector"

# Spans of requests, and what the application sees of them.
class TracesBoundaryTest < Minitest::Test
  include WorkloadCase

  def setup
    super
    @collector = OtlpCollector.new
  end

  def teardown
    super
    @collector.close
  end

  def test_a_request_knows_its_span_and_the_span_its_route_and_error
    seen = Queue.new
    port = traced do |env|
      seen << [env["HTTP_TRACEPARENT"], Chaton::Native.traceparent, Chaton::Native.trace_id, Chaton::Native.tracestate]
      env["sinatra.route"] = "GET /a/:id"
      env["action_dispatch.exception"] = IOError.new("secret")
      [500, { "content-type" => "text/plain" }, ["no luck"]]
    end
    get(port, "/a/1?secret", headers: { "tracestate" => "a=1" })
    span = @collector.wait("a span") { |found| found.size == 1 }.first
    header = "00-#{span.trace_id}-#{span.span_id}-01"
    assert_equal [header, header, span.trace_id, nil], seen.pop
    assert_equal ["GET /a/:id", "/a/:id", "IOError", 500],
                 [span.name, *span.attributes.values_at("http.route", "error.type", "http.response.status_code")]
    refute_includes span.inspect, "secret"
    assert_nil Chaton::Native.traceparent
  end

  def test_odd_methods_hijacks_and_query_strings
    port = traced(traces_query: true) do |env|
      next [200, { "rack.hijack" => ->(io) { io.close } }, []] if env["PATH_INFO"] == "/hijack"

      env["action_dispatch.route_uri_pattern"] = nil
      [200, {}, ["fine"]]
    end
    exchange(port, "BREW /pot?a=%20 HTTP/1.0\r\nHost: h:81\r\nX-Forwarded-Proto: https\r\n\r\n")
    exchange(port, "GET /hijack HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    odd, = @collector.wait("two spans") { |found| found.size == 2 }.sort_by { |span| span["url.path"] }.reverse
    expected = { "http.request.method" => "_OTHER", "http.request.method_original" => "BREW", "url.query" => "a=%20",
                 "server.address" => "h", "server.port" => 81, "url.scheme" => "https",
                 "network.protocol.version" => "1.0" }
    assert_equal ["HTTP", expected], [odd.name, odd.attributes.slice(*expected.keys)]
  end

  def test_a_child_of_the_application_makes_no_spans
    port = traced do
      reader, writer = IO.pipe
      pid = fork do
        writer.write(Chaton::Native.traceparent.inspect)
        exit!(0)
      end
      writer.close
      Process.wait(pid)
      [200, {}, [reader.read]]
    end
    assert_equal "nil", get(port).body
    @collector.wait("the request's own") { |found| found.size == 1 }
  end

  private

  def traced(**changes, &app)
    defaults = Chaton::Config::Options.names(:traces).to_h { |name| [name, Chaton::Config::Options[name].default] }
    settings = Chaton::Config::TracesSettings.new(**defaults, traces_endpoint: "#{@collector.url}/v1/traces",
                                                              traces_interval_s: 0.01, **changes)
    serve(traces: settings, &app)
  end
end
