# frozen_string_literal: true

require "json"
require_relative "broker_address"
require_relative "options"
require_relative "store_address"

module Chaton
  module Config
    # A topic that a consumer reads: the name of its class (or the class, if it has no name), its group, its
    # deserializer, its settings for the engine, whether its batches wait for what they have produced, and the keywords
    # of its line.
    StreamsRoute = Struct.new(:topic, :consumer, :group, :deserializer, :engine, :wait_for_deliveries, :given) do
      def to_h
        super.except(:given)
          .merge(consumer: consumer.to_s, deserializer: Options[:topic_deserializer].type.show(deserializer))
      end

      alias_method :wait_for_deliveries?, :wait_for_deliveries

      # @return [Boolean] whether its consumer writes and commits in one transaction
      def transactional? = engine.fetch(:transactional)
    end

    # A declared topic; nil: the log's own default.
    StreamsTopic = Struct.new(:name, :partitions, :replication, :settings)

    # Settings of streams. `log` has those of the log, `groups` those of each group with its routes, both as the engine
    # takes them; `routes` are in the order in which the engine numbers them. `threads` and `shutdown_timeout_s` apply
    # to workers that run only streams, and are nil where the plan's own values apply; `options` has each option's.
    StreamsSettings = Struct.new(
      :log, :groups, :routes, :topics, :load, :threads, :shutdown_timeout_s, :produce_timeout_s, :flush_timeout_s,
      :static_membership, :engine, :member, :options, keyword_init: true
    ) do
      def broker = StoreAddress.shown(log.fetch(:broker))

      # @return [Boolean] whether each worker has a name in Kafka's groups that its replacement gets too
      def permanent_names? = static_membership && log_file.nil?

      # @return [String, nil] the file of a log on this machine
      def log_file = BrokerAddress.file(log.fetch(:broker))

      # @return [Float] time for a record to become durable
      def delivery_timeout_s = log.fetch(:delivery_timeout_s)

      # @param given [Hash{Symbol=>Object}] options of the log, checked
      # @return [StreamsSettings] with this log
      def with_log(given, root)
        changes = given.transform_keys { |name| name == :kafka ? :properties : Options[name].written }
        changes[:tls_ca_file] &&= File.expand_path(changes[:tls_ca_file], root)
        changes[:broker] = BrokerAddress.under(changes.fetch(:broker), root)
        changes[:properties] = { **log[:properties], **changes[:properties] }.freeze if changes[:properties]
        changes.delete(:tls_ca_file) unless changes[:tls_ca_file]
        dup.tap { |copy| copy.log = { **log, **changes }.freeze }.freeze
      end

      # @param changes [Hash{Symbol=>Object}] of the log's settings
      def log_document(**changes) = JSON.generate({ **log, **changes })

      # @return [Array<String>] the same with the properties of each group, for checking them before anything is opened
      def log_documents
        own = groups.map { |group| log[:properties].merge(group[:group].fetch(:properties)) }
        [log[:properties], *own].uniq.map { |properties| log_document(properties: properties) }
      end

      # @return [Hash{Symbol=>Object}] JSON-able, without secrets
      def to_h
        shown = log.merge(broker: broker, password: Options[:streams_password].type.show(log[:password]))
        %i[properties producer_properties].each { |name| shown[name] = shown[name].keys }
        groups = self.groups.map { |group| { **group, group: group[:group].merge(properties: names(group)) } }
        super.except(:options).merge(log: shown, groups: groups, routes: routes.map(&:to_h), topics: topics.map(&:to_h),
                                     threads: threads&.to_s)
      end

      # An error message must not contain a password.
      def inspect = "#<streams at #{broker}>"

      private

      def names(group) = group[:group].fetch(:properties).keys
    end
  end
end
