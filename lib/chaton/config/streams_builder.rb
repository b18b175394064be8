# frozen_string_literal: true

require "socket"
require_relative "streams_settings"

module Chaton
  module Config
    # Makes {StreamsSettings} from option values.
    class StreamsBuilder
      # Options that go into the log's settings unchanged.
      OF_LOG = %i[mechanism client_id produce_buffer_bytes produce_buffer_records linger_ms retention_bytes
                  buffer_bytes].freeze
      # Field of the log => its option, where they differ.
      RENAMED = { username: :streams_username, password: :streams_password, durable: :streams_durable,
                  partitions: :log_partitions }.freeze
      # Options that an application may set with the broker in Ruby => fields of the log.
      IN_RUBY = { broker: :broker, streams_username: :username, streams_password: :password, mechanism: :mechanism,
                  streams_tls_ca_file: :tls_ca_file, kafka: :properties }.freeze
      # Field in milliseconds => its option in seconds.
      TIMES = { answer_timeout_ms: :streams_answer_timeout_s, delivery_timeout_ms: :delivery_timeout_s,
                refused_timeout_ms: :refused_timeout_s }.freeze
      # Characters that Kafka does not allow in a member's permanent name.
      NO_NAME = /[^a-zA-Z0-9._-]/

      # @param root [String] the application's directory
      # @param lines [Array<TopicLine>]
      # @yieldparam name [Symbol] an option
      # @yieldreturn [Object] its value
      def initialize(root, tag:, lines:, &value)
        @root = root
        @tag = tag
        @lines = lines
        @value = value
      end

      # @return [StreamsSettings]
      def settings
        by_group = @lines.select(&:consumer).group_by { |line| line[:group] || @tag }
        StreamsSettings.new(
          log: log, groups: by_group.map { |name, lines| group(name, lines) }.freeze, topics: topics,
          routes: by_group.flat_map { |name, lines| lines.map { |line| route(name, line) } }.freeze,
          load: paths(:streams_load), threads: value(:streams_threads),
          shutdown_timeout_s: value(:streams_shutdown_timeout_s), produce_timeout_s: value(:produce_timeout_s),
          flush_timeout_s: value(:flush_timeout_s), static_membership: value(:static_membership),
          engine: engine, member: "#{Socket.gethostname}-#{@tag}".gsub(NO_NAME, "_").freeze,
          options: Options.in(:streams).to_h { |option| [option.name, value(option.name)] }.freeze
        ).freeze
      end

      private

      def value(name) = @value.call(name)

      def log
        compression = value(:compression)
        retention_s = value(:retention_s)
        {
          broker: BrokerAddress.under(value(:broker), @root), tls_ca_file: absolute(value(:streams_tls_ca_file)),
          properties: properties(:kafka), producer_properties: properties(:producer_kafka),
          compression: compression == :none ? nil : compression,
          retention_ms: retention_s.positive? ? ms(retention_s) : nil, topics: declared,
          **OF_LOG.to_h { |name| [name, value(name)] }, **RENAMED.transform_values { |name| value(name) },
          **TIMES.transform_values { |name| ms(value(name)) }
        }.freeze
      end

      def engine
        { commit_interval_ms: value(:commit_interval_ms), ready_batches: value(:ready_batches),
          group_retry_max_ms: ms(value(:group_retry_max_s)) }.freeze
      end

      def group(name, lines)
        own = { name: name, topics: lines.map(&:name), protocol: common(lines, :protocol), start: common(lines, :start),
                session_timeout_ms: ms(value(:session_timeout_s)),
                max_poll_interval_ms: ms(value(:max_poll_interval_s)), read_committed: value(:read_committed),
                properties: properties(:consumer_kafka) }
        { group: own.freeze, routes: lines.map { |line| route(name, line).engine }.freeze }.freeze
      end

      # The value of the line that sets it applies to all.
      def common(lines, key)
        (lines.find { |line| line.given.key?(key) } || lines.first)[key]
      end

      def route(group, line)
        StreamsRoute.new(line.name, line.consumer, group, line[:deserializer], engine_of(line),
                         line[:wait_for_deliveries]).freeze
      end

      def engine_of(line)
        throttle = line[:throttle]
        {
          topic: line.name, batch: line[:batch], batch_bytes: line[:batch_bytes], concurrency: line[:concurrency],
          order: line.order, manual: line[:offsets] == :manual, attempts_max: line.retries&.succ,
          backoff_ms: ms(line[:backoff]), backoff_max_ms: ms([line[:backoff], line[:backoff_max]].max),
          dead_letter: line[:dead_letter], delay_ms: ms(line[:delay]), expires_ms: ms(line[:expires]),
          on_gap: line[:on_gap],
          throttle: throttle && { records: throttle[0], per_ms: ms(throttle[1]) }, transactional: line[:transactional]
        }.freeze
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

      def ms(seconds) = (seconds * 1000).round
    end
  end
end
