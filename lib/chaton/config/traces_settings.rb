# frozen_string_literal: true

require "socket"
require_relative "../version"
require_relative "options"

module Chaton
  module Config
    # Settings of the traces. Each field is an option of `traces { }`, see docs/CONFIGURATION.md.
    TracesSettings = Struct.new(*Options.names(:traces), keyword_init: true) do
      # @return [Hash{Symbol=>Object}] JSON-able
      def to_h = super.merge(traces_headers: traces_headers&.transform_values { "given" })

      # The section of the engine document.
      #
      # @return [Hash{Symbol=>Object}]
      def engine(plan, worker)
        { **Options.document(:traces, self),
          headers: traces_headers.to_a, resource: resource(plan, worker).to_a, version: VERSION }
      end

      private

      # By OpenTelemetry's semantic conventions.
      def resource(plan, worker)
        host = Socket.gethostname
        own = { "service.name" => plan.tag, "service.instance.id" => "#{host}:#{::Process.pid}", "host.name" => host,
                "deployment.environment.name" => plan.environment, "chaton.worker" => worker.to_s,
                "process.runtime.name" => RUBY_ENGINE, "process.runtime.version" => RUBY_VERSION,
                "telemetry.sdk.name" => "chaton", "telemetry.sdk.language" => "rust",
                "telemetry.sdk.version" => VERSION }
        own.merge(traces_attributes.to_h, { "service.name" => traces_service_name }.compact)
      end
    end
  end
end
