# frozen_string_literal: true

module Chaton
  module Telemetry
    # Traces of a process, and what Ruby's OpenTelemetry SDK gets of them. The spans are made in Rust
    # (`ext/chaton/src/traces.rs`), by the threads that run the work.
    module Traces
      class << self
        def start(plan, native_pool)
          @started = plan.traces ? true : false
          return unless @started

          Native.start_traces(native_pool)
          Native.producer_parent = (method(:ruby_parent) if ruby_api?)
        end

        # Sends what is left.
        #
        # @param within_s [Float] at most, besides `stop_s`
        def stop(plan, within_s, log:)
          return unless @started

          @started = false
          lost = Native.stop_traces([plan.traces.traces_stop_s, within_s].min)
          return if lost.zero?

          log.warn("spans were not sent before the process ended", dropped: lost, endpoint: plan.traces.traces_endpoint)
        end

        # @param handler [#call] runs a unit of work
        # @return [#call] the same, in which the unit's span is the parent of spans that Ruby's SDK makes
        def around(handler)
          return handler unless @started && ruby_api?

          ->(work) { ::OpenTelemetry::Context.with_current(ruby_context) { handler.call(work) } }
        end

        # @return [String, nil] of the trace that the calling thread is in
        def trace_id = (Native.trace_id if @started)

        # The header `traceparent` of the span that the calling thread is in, for the job's middleware.
        #
        # @param job [Hash{String=>Object}] a document
        def into(job)
          traceparent = @started && Native.traceparent
          traceparent ? job.merge!("traceparent" => traceparent) : job
        end

        # @param error [Exception] of the work that the calling thread runs
        def failed(error)
          Native.span_failed(error.class.name.to_s) if @started
        end

        private

        # The SDK itself may be set up later; without it, its part is empty.
        def ruby_api? = defined?(::OpenTelemetry::Trace::Propagation::TraceContext) ? true : false

        def ruby_context
          carrier = { "traceparent" => Native.traceparent, "tracestate" => Native.tracestate }.compact
          ::OpenTelemetry::Trace::Propagation::TraceContext.text_map_propagator.extract(carrier)
        end

        # The span of Ruby's SDK in which the calling thread is.
        def ruby_parent
          context = ::OpenTelemetry::Trace.current_span.context
          return unless context.valid?

          "00-#{context.hex_trace_id}-#{context.hex_span_id}-#{context.trace_flags.sampled? ? "01" : "00"}"
        end
      end
    end
  end
end
