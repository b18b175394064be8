# frozen_string_literal: true

require "socket"
require_relative "streams_settings"

module Chaton
  module Config
    # Makes {StreamsSettings} from option values.
    class StreamsBuilder
      # Options that an application may set with the broker in Ruby.
      IN_RUBY = %i[broker streams_username streams_password mechanism streams_tls_ca_file kafka].freeze
      # Characters that Kafka does not allow in a member's permanent name.
      NO_NAME = /[^a-zA-Z0-9._-]/

      # @yieldparam name [Symbol] an option
      # @yieldreturn [Object] its value
      def initialize(root, tag:, lines:, &value)
        @root = root
        @tag = tag
        @lines = lines
        @value = value
      end

      def settings
        by_group = @lines.select(&:consumer).group_by { |line| line[:group] || @tag }
        StreamsSettings.new(
          log: log, groups: by_group.map { |name, lines| group(name, lines) }.freeze, topics: topics,
          routes: by_group.flat_map { |name, lines| lines.map { |line| route(name, line) } }.freeze,
          load: paths(:streams_load), threads: value(:streams_threads),
          shutdown_timeout_s: value(:streams_shutdown_timeout_s), produce_timeout_s: value(:produce_timeout_s),
          flush_timeout_s: value(:flush_timeout_s), static_membership: value(:static_membership),
          engine: Options.document(:streams, @value).freeze,
          member: "#{Socket.gethostname}-#{@tag}".gsub(NO_NAME, "_").freeze,
          options: Options.in(:streams).to_h { |option| [option.name, value(option.name)] }.freeze
        ).freeze
      end

      private

      def value(name) = @value.call(name)

      def log
        settings = Options.document(:log, @value)
        { **settings,
          broker: BrokerAddress.under(value(:broker), @root), tls_ca_file: absolute(settings[:tls_ca_file]),
          properties: properties(:kafka), producer_properties: properties(:producer_kafka), topics: declared,
          compression: (settings[:compression] unless settings[:compression] == :none) }.freeze
      end

      def group(name, lines)
        own = Options.document(:streams, :group, @value)
          .merge(name: name, topics: lines.map(&:name), protocol: common(lines, :protocol),
                 start: common(lines, :start), properties: properties(:consumer_kafka))
        { group: own.freeze, routes: lines.map { |line| route(name, line).engine }.freeze }.freeze
      end

      # The value of the line that sets it applies to all.
      def common(lines, key)
        (lines.find { |line| line.given.key?(key) } || lines.first)[key]
      end

      def route(group, line)
        StreamsRoute.new(line.name, line.consumer, group, line[:deserializer], engine_of(line),
                         line[:wait_for_deliveries], line.given).freeze
      end

      def engine_of(line)
        records, per_s = line[:throttle]
        { **Options.document(:streams, :route, ->(name) { line[Options[name].key] }),
          topic: line.name, order: line.order, manual: line[:offsets] == :manual, attempts_max: line.retries&.succ,
          backoff_max: [line[:backoff], line[:backoff_max]].max,
          throttle: records && { records: records, per_s: per_s } }.freeze
      end

      # The topics of the file, followed by dead-letter topics.
      def topics
        named = @lines.group_by(&:name).map do |name, lines|
          StreamsTopic.new(name, common(lines, :partitions), common(lines, :replication),
                           common(lines, :settings) || {})
        end
        dead = @lines.filter_map { |line| line[:dead_letter] }.uniq - named.map(&:name)
        [*named, *dead.map { |name| StreamsTopic.new(name, nil, nil, {}) }].each(&:freeze).freeze
      end

      # The local log creates them when a worker with consumers boots, or with their first record.
      def declared
        topics.to_h do |topic|
          settings = topic.settings.to_h { |name, value| [name.to_s, value.to_s] }
          [topic.name, { partitions: topic.partitions, settings: settings }]
        end.freeze
      end

      def properties(name) = Array(value(name)).reduce({}, :merge).freeze

      def paths(name) = Array(value(name)).flatten.map { |path| absolute(path) }.freeze

      def absolute(path) = path && File.expand_path(path, @root).freeze
    end
  end
end
