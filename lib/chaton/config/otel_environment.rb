# frozen_string_literal: true

module Chaton
  module Config
    # OpenTelemetry's environment variables whose values are not those of the options. Each method returns the name of
    # the variable and the value that the option takes, or nil.
    module OtelEnvironment
      # Sampler => the share that it records; nil: OTEL_TRACES_SAMPLER_ARG.
      SAMPLERS = { "always_on" => "1.0", "always_off" => "0.0", "traceidratio" => nil }.freeze
      # Before the name of a sampler that follows the parent.
      PARENT_BASED = "parentbased_"
      private_constant :SAMPLERS, :PARENT_BASED

      module_function

      # @return [Array(String, String), nil] that they are off
      def enabled(env)
        return ["OTEL_SDK_DISABLED", "false"] if env["OTEL_SDK_DISABLED"].to_s.casecmp?("true")

        ["OTEL_TRACES_EXPORTER", "false"] if env["OTEL_TRACES_EXPORTER"] == "none"
      end

      # @return [Array(String, String), nil] the share of a sampler
      def sample(env)
        named = given(env, "OTEL_TRACES_SAMPLER") or return
        sampler = named.last.delete_prefix(PARENT_BASED)
        # Any other name is refused by the option.
        return named unless SAMPLERS.key?(sampler)

        [named.first, SAMPLERS[sampler] || given(env, "OTEL_TRACES_SAMPLER_ARG")&.last || "1.0"]
      end

      # @return [Array(String, String), nil] that a sampler does not follow the parent
      def follow_parent(env)
        named = given(env, "OTEL_TRACES_SAMPLER")
        [named.first, "false"] unless named.nil? || named.last.start_with?(PARENT_BASED)
      end

      # The general variable is the address of the collector, the other one that of its traces.
      def endpoint(env)
        given(env, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") ||
          given(env, "OTEL_EXPORTER_OTLP_ENDPOINT")&.then { |name, url| [name, "#{url.chomp("/")}/v1/traces"] }
      end

      # @return [Array(String, String), nil] seconds
      def interval_s(env) = seconds(given(env, "OTEL_BSP_SCHEDULE_DELAY"))

      # @return [Array(String, String), nil] seconds
      def timeout_s(env)
        seconds(given(env, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") || given(env, "OTEL_EXPORTER_OTLP_TIMEOUT"))
      end

      def given(env, name) = env[name].to_s.empty? ? nil : [name, env[name]]

      # They are in milliseconds.
      def seconds(named)
        named && [named.first, Integer(named.last, 10, exception: false)&.fdiv(1000)&.to_s || named.last]
      end
      private_class_method :given, :seconds
    end
  end
end
