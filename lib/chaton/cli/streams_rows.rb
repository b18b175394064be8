# frozen_string_literal: true

require_relative "../config/options"
require_relative "../config/streams_builder"

module Chaton
  class CLI
    # The rows of streams in a {PlanReport}.
    class StreamsRows
      # Options of the log => their fields.
      LOG_FIELDS = { streams_tls_ca_file: :tls_ca_file, **Config::StreamsBuilder::RENAMED.invert }.freeze
      # Options in seconds => fields in milliseconds.
      TIMES = { **Config::StreamsBuilder::TIMES.invert, retention_s: :retention_ms }.freeze
      # Options of all groups.
      OF_GROUPS = { session_timeout_s: :session_timeout_ms, max_poll_interval_s: :max_poll_interval_ms,
                    read_committed: :read_committed, consumer_kafka: :properties }.freeze
      # Settings of a route that are not printed.
      USUAL = { batch: 500, batch_bytes: 1 << 20, concurrency: 1, order: :partition, manual: false, attempts_max: nil,
                backoff_ms: 1_000, backoff_max_ms: 60_000, dead_letter: nil, delay_ms: 0, expires_ms: 0, on_gap: :warn,
                throttle: nil, transactional: false, wait_for_deliveries: false }.freeze

      # @param group [Symbol] of options
      # @param options [Array<Config::Option>] of that group
      # @return [Array<Array(String, String)>] names and values
      def self.of(plan, group, options)
        rows = new(plan)
        group == :topic ? rows.topics : options.map { |option| [option.name.to_s, rows.shown(option)] }
      end

      def initialize(plan)
        @plan = plan
        @streams = plan.streams
      end

      # @return [Array<Array(String, String)>] a line for each consumer, and each topic without one
      def topics
        read = @streams.routes.map do |route|
          settings = { **route.engine, wait_for_deliveries: route.wait_for_deliveries }
          special = settings.except(:topic).reject { |name, value| USUAL[name] == value }
          facts = ["group #{route.group}", *special.map { |name, value| "#{name} #{value}" }]
          ["topic #{route.topic}", "#{route.consumer}, #{facts.join(", ")}"]
        end
        names = @streams.routes.map(&:topic)
        rest = @streams.topics.reject { |topic| names.include?(topic.name) }
        [*read, *rest.map { |topic| ["topic #{topic.name}", "no consumer"] }]
      end

      # @return [String]
      def shown(option)
        case option.name
        when :broker then @streams.broker
        when :streams_threads then @streams.threads&.to_s || "as threads"
        when :streams_shutdown_timeout_s then (@streams.shutdown_timeout_s || @plan.shutdown_timeout_s).to_s
        when :mechanism then @streams.log[:mechanism] || option.default_text
        else
          value = value(option)
          option.type.show(value.nil? ? option.default : value)
        end
      end

      private

      def value(option)
        name = option.name
        case name
        when :kafka then [@streams.log[:properties]]
        when :producer_kafka then [@streams.log[:producer_properties]]
        when :streams_load then @streams.load
        when :group_retry_max_s then @streams.engine[:group_retry_max_ms] / 1000.0
        when *OF_GROUPS.keys then of_groups(name)
        when *TIMES.keys then @streams.log[TIMES.fetch(name)]&.fdiv(1000)
        else of_log(name)
        end
      end

      # All groups have the same values; without a group there are none.
      def of_groups(name)
        group = @streams.groups.first&.fetch(:group) or return
        value = group[OF_GROUPS.fetch(name)]
        case name
        when :session_timeout_s, :max_poll_interval_s then value / 1000.0
        when :consumer_kafka then [value]
        else value
        end
      end

      def of_log(name)
        [@streams.log, @streams.engine].each do |fields|
          field = LOG_FIELDS.fetch(name, name)
          return fields[field] if fields.key?(field)
        end
        @streams.public_send(name)
      end
    end
  end
end
