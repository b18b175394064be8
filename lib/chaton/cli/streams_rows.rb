# frozen_string_literal: true

require_relative "../config/options"

module Chaton
  class CLI
    # The rows of streams in a {PlanReport}.
    class StreamsRows
      # Settings of a route that are not printed.
      USUAL = { batch: 500, batch_bytes: 1 << 20, concurrency: 1, order: :partition, manual: false, attempts_max: nil,
                backoff_ms: 1_000, backoff_max_ms: 60_000, dead_letter: nil, delay_ms: 0, expires_ms: 0, on_gap: :warn,
                throttle: nil, transactional: false, wait_for_deliveries: false }.freeze

      # @param group [Symbol] of options
      # @param options [Array<Config::Option>] of that group
      # @return [Array<Array(String, String)>] names and values
      def self.of(plan, group, options)
        rows = new(plan)
        group == :topic ? rows.topics : options.map { |option| [option.written.to_s, rows.shown(option)] }
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
        when :streams_threads then @streams.threads&.to_s || "as outside"
        when :streams_shutdown_timeout_s then (@streams.shutdown_timeout_s || @plan.shutdown_timeout_s).to_s
        when :mechanism then @streams.options[:mechanism] || option.default_text
        else option.type.show(@streams.options.fetch(option.name))
        end
      end
    end
  end
end
