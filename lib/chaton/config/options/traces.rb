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
        Option.in(:traces, :traces_sample, :traces, Types::Number.new(0.0..1.0), 1.0,
                  "Which share of the traces that begin here is recorded. A trace that began elsewhere is recorded " \
                  "just when it is recorded there.",
                  key: :sample, env: %w[OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG],
                  read: OtelEnvironment.method(:sample), engine: :traces),
        Option.in(:traces, :traces_follow_parent, :traces, Types::Switch.new, true,
                  "Off: the share is taken of traces that began elsewhere too, as the samplers of OpenTelemetry " \
                  "without parentbased_ do.",
                  key: :follow_parent, env: %w[OTEL_TRACES_SAMPLER], read: OtelEnvironment.method(:follow_parent),
                  engine: :traces),
        Option.in(:traces, :traces_service_name, :traces, Types::Word.new, nil,
                  "The name under which the application's spans are found.",
                  default_text: "the tag", key: :service_name, env: %w[OTEL_SERVICE_NAME]),
        Option.in(:traces, :traces_attributes, :traces, Types::NamedValues.new, nil,
                  "Attributes of the process, such as \"service.namespace\" => \"shop\".",
                  key: :attributes, env: %w[OTEL_RESOURCE_ATTRIBUTES]),
        Option.in(:traces, :traces_query, :traces, Types::Switch.new, false,
                  "Whether spans of requests have their query strings (url.query), which may hold secrets.",
                  key: :query, engine: :traces)
      ].freeze

      # How it is sent.
      COLLECTOR = [
        Option.in(:traces, :traces_endpoint, :traces, Types::TracesEndpoint.new, "http://127.0.0.1:4318/v1/traces",
                  "The collector, which takes OTLP over HTTP with protobuf. An https:// collector is checked against " \
                  "the system's certificates.",
                  key: :endpoint, env: %w[OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_ENDPOINT],
                  read: OtelEnvironment.method(:endpoint), engine: :traces),
        Option.in(:traces, :traces_headers, :traces, Types::SecretHeaders.new, nil,
                  "Headers of each request to the collector, such as \"authorization\" => \"Bearer …\"; never shown.",
                  key: :headers, env: %w[OTEL_EXPORTER_OTLP_TRACES_HEADERS OTEL_EXPORTER_OTLP_HEADERS])
      ].freeze

      TRACES = [*SPANS, *COLLECTOR].freeze
    end
  end
end
