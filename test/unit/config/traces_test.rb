# frozen_string_literal: true

require_relative "config_case"
require "chaton/cli/plan_report"

# The block `traces { }`.
class TracesConfigTest < ConfigCase
  VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT" => "http://collector:4318/", "OTEL_EXPORTER_OTLP_HEADERS" => "a=b%20%C3%A4, d=e+f=%",
    "OTEL_SERVICE_NAME" => "shop", "OTEL_RESOURCE_ATTRIBUTES" => "team=blue", "OTEL_BSP_SCHEDULE_DELAY" => "250",
    "OTEL_BSP_MAX_QUEUE_SIZE" => "7", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" => "3", "OTEL_EXPORTER_OTLP_TIMEOUT" => "1500",
    "OTEL_TRACES_SAMPLER" => "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG" => "0.25"
  }.freeze

  def test_it_is_off_without_the_block
    assert_nil load.traces
    @env.update(VARIABLES, "OTEL_TRACES_SAMPLER" => "nonsense")
    assert_nil load.traces
    assert_nil load.to_h.fetch(:traces)
    refute_includes JSON.parse(load.engine_document(roles: [:web], slot: 0)), "traces"
  end

  def test_defaults
    traces = plan("traces { }").traces
    assert_equal ["http://127.0.0.1:4318/v1/traces", 1.0, true],
                 [traces.traces_endpoint, traces.traces_sample, traces.traces_follow_parent]
    assert_equal [2048, 512, 5.0, 10.0, 3.0], traces.to_a.last(5)
  end

  def test_an_address_without_a_path_gets_the_standards
    endpoint = ->(url) { plan("traces { endpoint #{url.dump} }").traces.traces_endpoint }
    assert_equal "https://a/v1/traces", endpoint["https://a"]
    assert_equal "http://a:1/v1/traces", endpoint["http://a:1/"]
    assert_equal "http://a/x", endpoint["http://a/x"]
    ["grpc://a", "a:4318", "http://", "http://user:secret@a", "http://a b"].each do |wrong|
      text = only_problem("traces { endpoint #{wrong.dump} }").to_s
      assert_match(/endpoint must be an address such as/, text)
      refute_includes text, "secret"
    end
  end

  def test_the_standards_variables
    @env.update(VARIABLES)
    traces = plan("traces { }").traces
    assert_equal ["http://collector:4318/v1/traces", { "a" => "b ä", "d" => "e+f=%" }, 7, 3, 0.25, 1.5],
                 [traces.traces_endpoint, traces.traces_headers, traces.traces_queue_max, traces.traces_batch_max,
                  traces.traces_interval_s, traces.traces_timeout_s]
    assert_equal [0.25, true, "shop", { "team" => "blue" }], traces.to_a.first(4)
    @env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "http://other/path"
    assert_equal "http://other/path", plan("traces { }").traces.traces_endpoint
    assert_equal 0.5, plan("traces { sample 0.5 }").traces.traces_sample
  end

  def test_samplers
    expected = { "always_on" => [1.0, false], "always_off" => [0.0, false], "parentbased_always_off" => [0.0, true],
                 "traceidratio" => [0.125, false], "parentbased_always_on" => [1.0, true] }
    expected.each do |name, result|
      @env.update("OTEL_TRACES_SAMPLER" => name, "OTEL_TRACES_SAMPLER_ARG" => "0.125")
      assert_equal result, plan("traces { }").traces.to_a.first(2), name
    end
    @env["OTEL_TRACES_SAMPLER"] = "jaeger_remote"
    assert_match(/OTEL_TRACES_SAMPLER.*must be a number/, only_problem("traces { }").to_s)
  end

  def test_variables_that_turn_it_off
    [%w[OTEL_SDK_DISABLED true], %w[OTEL_TRACES_EXPORTER none]].each do |name, value|
      @env[name] = value
      assert_nil plan("traces { }").traces
      @env.delete(name)
    end
  end

  def test_headers_are_never_shown
    plan = plan("traces { headers \"authorization\" => \"Bearer secret\" }")
    report = Chaton::CLI::PlanReport.new(plan).to_s
    assert_match(/^  headers +given$/, report)
    assert_match(/^  service_name +#{plan.tag}$/, report)
    refute_includes report + plan.to_h.inspect, "secret"
    problem = only_problem("traces { headers \"a\" => \"secret\\n\" }").to_s
    assert_match(/headers must be a Hash of headers/, problem)
    refute_includes problem, "secret"
  end

  # Workers could not start with it.
  def test_a_header_that_cannot_be_sent_is_refused
    ["authorization Basic secret", "secret:", "ä"].each do |name|
      problem = only_problem("traces { headers #{name.dump} => \"secret\" }").to_s
      assert_match(/headers must be a Hash .* with names such as x-api-key/, problem)
      refute_includes problem, "secret"
    end
    assert_equal({ "X-Api_Key" => "ä" }, plan("traces { headers \"X-Api_Key\" => \"ä\" }").traces.traces_headers)
  end

  def test_the_document_of_a_worker
    @env["OTEL_RESOURCE_ATTRIBUTES"] = "host.name=h"
    document = JSON.parse(plan("traces { headers \"a\" => \"b\" }").engine_document(roles: [:web], slot: 0, index: 3))
    traces = document.fetch("traces")
    assert_equal [["a", "b"]], traces["headers"]
    resource = traces["resource"].to_h
    assert_equal ["h", "3", plan("").tag], resource.values_at("host.name", "chaton.worker", "service.name")
  end
end
