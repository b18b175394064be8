# frozen_string_literal: true

require_relative "../option"
require_relative "../otel_environment"
require_relative "../types/text"
require_relative "../types/traces"

module Chaton
  module Config
    module Options
      # What is recorded.
      SPANS = [
        Option.in(:traces, :traces_enabled, :traces, Types::Switch.new, true,
                  "Whether the block has an effect: OTEL_SDK_DISABLED=true and OTEL_TRACES_EXPORTER=none turn it off.",
                  also: %i[enabled], env: %w[OTEL_SDK_DISABLED OTEL_TRACES_EXPORTER],
                  read: OtelEnvironment.method(:enabled)),
        Option.in(:traces, :traces_sample, :traces, Types::Number.new(0.0..1.0), 1.0,
                  "Which share of the traces that begin here is recorded. A trace that began elsewhere is recorded " \
                  "just when it is recorded there.",
                  also: %i[sample], env: %w[OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG],
                  read: OtelEnvironment.method(:sample)),
        Option.in(:traces, :traces_follow_parent, :traces, Types::Switch.new, true,
                  "Off: the share is taken of traces that began elsewhere too, as the samplers of OpenTelemetry " \
                  "without parentbased_ do.",
                  also: %i[follow_parent], env: %w[OTEL_TRACES_SAMPLER], read: OtelEnvironment.method(:follow_parent)),
        Option.in(:traces, :traces_service_name, :traces, Types::Word.new, nil,
                  "The name under which the application's spans are found.",
                  default_text: "the tag", also: %i[service_name], env: %w[OTEL_SERVICE_NAME]),
        Option.in(:traces, :traces_attributes, :traces, Types::NamedValues.new, nil,
                  "Attributes of the process, such as \"service.namespace\" => \"shop\".",
                  also: %i[attributes], env: %w[OTEL_RESOURCE_ATTRIBUTES]),
        Option.in(:traces, :traces_query, :traces, Types::Switch.new, false,
                  "Whether spans of requests have their query strings (url.query), which may hold secrets.",
                  also: %i[query])
      ].freeze

      # How it is sent.
      COLLECTOR = [
        Option.in(:traces, :traces_endpoint, :traces, Types::TracesEndpoint.new, "http://127.0.0.1:4318/v1/traces",
                  "The collector, which takes OTLP over HTTP with protobuf. An https:// collector is checked against " \
                  "the system's certificates.",
                  also: %i[endpoint], env: %w[OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_ENDPOINT],
                  read: OtelEnvironment.method(:endpoint)),
        Option.in(:traces, :traces_headers, :traces, Types::SecretHeaders.new, nil,
                  "Headers of each request to the collector, such as \"authorization\" => \"Bearer …\"; never shown.",
                  also: %i[headers], env: %w[OTEL_EXPORTER_OTLP_TRACES_HEADERS OTEL_EXPORTER_OTLP_HEADERS]),
        Option.in(:traces, :traces_queue_max, :traces, Types::Number.new(1..1_000_000), 2048,
                  "Spans of a process that wait to be sent, at most; further ones are dropped and counted.",
                  also: %i[queue_max], env: %w[OTEL_BSP_MAX_QUEUE_SIZE]),
        Option.in(:traces, :traces_batch_max, :traces, Types::Number.new(1..100_000), 512,
                  "Spans in one request to the collector, at most.",
                  also: %i[batch_max], env: %w[OTEL_BSP_MAX_EXPORT_BATCH_SIZE]),
        Option.seconds(:traces, :traces_interval_s, :traces, 0.01..3600.0, 5.0,
                       "How long a span waits for others that are sent with it.",
                       also: %i[interval_s interval], env: %w[OTEL_BSP_SCHEDULE_DELAY],
                       read: OtelEnvironment.method(:interval_s)),
        Option.seconds(:traces, :traces_timeout_s, :traces, 0.1..3600.0, 10.0,
                       "Time for one request to the collector.",
                       also: %i[timeout_s timeout],
                       env: %w[OTEL_EXPORTER_OTLP_TRACES_TIMEOUT OTEL_EXPORTER_OTLP_TIMEOUT],
                       read: OtelEnvironment.method(:timeout_s)),
        Option.seconds(:traces, :traces_stop_s, :traces, 0.0..60.0, 3.0,
                       "Time in which a process that stops sends what is left; the rest is dropped and counted.",
                       also: %i[stop_s stop])
      ].freeze

      TRACES = [*SPANS, *COLLECTOR].freeze
    end
  end
end
