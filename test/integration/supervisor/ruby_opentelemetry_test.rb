# frozen_string_literal: true

require "test_helper"
require "support/traces_case"

# Spans that the application makes with Ruby's OpenTelemetry.
class RubyOpentelemetryTest < Minitest::Test
  include TracesCase

  # What of Ruby's OpenTelemetry API Chaton uses; it reads the header as the W3C says. The span of `/child` is one of
  # the application's.
  RUBY_API = <<~'RUBY'
    module OpenTelemetry
      class Context
        KEY = :stand_in_for_opentelemetry
        def self.current = Thread.current[KEY]

        def self.with_current(context)
          before = current
          Thread.current[KEY] = context
          yield context
        ensure
          Thread.current[KEY] = before
        end
      end

      module Trace
        Flags = Struct.new(:number) { def sampled? = number.odd? }
        SpanContext = Struct.new(:hex_trace_id, :hex_span_id, :trace_flags) { def valid? = !hex_trace_id.nil? }
        Span = Struct.new(:context)
        def self.current_span = Span.new(Context.current || SpanContext.new)

        module Propagation
          module TraceContext
            def self.text_map_propagator = self

            def self.extract(carrier)
              match = carrier["traceparent"]&.match(/\A00-(\h{32})-(\h{16})-(\h{2})\z/) or return Context.current
              SpanContext.new(match[1], match[2], Flags.new(match[3].hex))
            end
          end
        end
      end
    end

    require_relative "app/jobs/jobs"
    run(lambda do |env|
      context = OpenTelemetry::Context.current
      child = context.dup.tap { |one| one.hex_span_id = "1111111111111111" }
      OpenTelemetry::Context.with_current(child) { Third.perform_async } if env["PATH_INFO"] == "/child"
      [200, {}, [context.to_a.first(2).join(" ")]]
    end)
  RUBY

  def test_spans_of_rubys_opentelemetry_are_between_the_request_and_what_it_writes
    server = boot_traced(rackup: RUBY_API)
    seen = server.get("/child", headers: { "traceparent" => PARENT }).body
    spans = @collector.wait("the job has ended") { |found| found.any? { |span| span.kind == :consumer } }
    request = only(spans, :server)
    assert_equal "#{TRACE_ID} #{request.span_id}", seen
    pushed = only(spans, :producer)
    assert_equal [TRACE_ID, "1111111111111111"], [pushed.trace_id, pushed.parent_id]
    only(spans, :consumer, parent: pushed)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end
end
