# frozen_string_literal: true

require_relative "../config/options"

module Chaton
  class CLI
    # The rows of streams in a {PlanReport}.
    class StreamsRows
      # Keywords of a topic that are shown otherwise, or not here.
      ELSEWHERE = %i[group deserializer partitions replication settings].freeze

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
          given = route.given.except(*ELSEWHERE)
          facts = ["group #{route.group}",
                   *given.map { |key, value| "#{key} #{Config::Options[:"topic_#{key}"].type.show(value)}" }]
          ["topic #{route.topic}", "#{route.consumer}, #{facts.join(", ")}"]
        end
        names = @streams.routes.map(&:topic)
        rest = @streams.topics.reject { |topic| names.include?(topic.name) }
        [*read, *rest.map { |topic| ["topic #{topic.name}", "no consumer"] }]
      end

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
