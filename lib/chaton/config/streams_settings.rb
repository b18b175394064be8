# frozen_string_literal: true

require "json"
require_relative "broker_address"
require_relative "options"
require_relative "store_address"

module Chaton
  module Config
    # A topic that a consumer reads: the name of its class (the class itself where it has none), its group, what
    # makes a value of a record's bytes, and what the engine is told of it.
    StreamsRoute = Struct.new(:topic, :consumer, :group, :deserializer, :engine) do
      # @return [Hash{Symbol=>Object}] JSON-able
      def to_h
        super.merge(consumer: consumer.to_s, deserializer: Options[:topic_deserializer].type.show(deserializer))
      end

      # @return [Boolean] whether its consumer writes and commits in one transaction
      def transactional? = engine.fetch(:transactional)
    end

    # A topic as it shall be; nil: the log's own default.
    StreamsTopic = Struct.new(:name, :partitions, :replication, :settings)

    # What streams are read, and written, with. `log` are the settings of the log, `groups` those of each group with
    # its routes, both as the engine takes them; `routes` are in the order in which the engine counts them. Threads
    # and shutdown_timeout_s hold for workers that do nothing but streams, and are nil where the plan's own hold.
    StreamsSettings = Struct.new(
      :log, :groups, :routes, :topics, :load, :threads, :shutdown_timeout_s, :produce_timeout_s, :flush_timeout_s,
      :static_membership, :engine, :member, keyword_init: true
    ) do
      # @return [String] where records live, for people
      def broker = StoreAddress.shown(log.fetch(:broker))

      # @return [Boolean] whether Kafka knows each worker by a name that its successor has, too
      def lasting_names? = static_membership && !log.fetch(:broker).start_with?(BrokerAddress::LOCAL)

      # @return [Float] how long a record may take to become durable
      def delivery_timeout_s = log.fetch(:delivery_timeout_ms) / 1000.0

      # @return [String] JSON, as the native client takes it
      def log_json = JSON.generate(log)

      # @return [Array<String>] the same with the properties of each group, for checking them before anything is opened
      def log_jsons
        own = groups.map { |group| log[:properties].merge(group[:group].fetch(:properties, {})) }
        [log[:properties], *own].uniq.map { |properties| JSON.generate({ **log, properties: properties }) }
      end

      # @param index [Integer] of the worker
      # @param eof [Array<Integer>] routes whose consumers want to hear of the end of a partition
      # @return [String] JSON, as the engine takes it
      def engine_json(index: 0, eof: [])
        number = -1
        groups = self.groups.map do |group|
          routes = group[:routes].map { |route| route.merge(eof: eof.include?(number += 1)) }
          own = { eof: routes.any? { |route| route[:eof] } }
          own[:instance_id] = "#{member}-#{index}" if static_membership
          { group: group[:group].merge(own), routes: routes }
        end
        JSON.generate({ groups: groups, **engine })
      end

      # @return [Hash{Symbol=>Object}] JSON-able, without secrets
      def to_h
        shown = log.merge(broker: broker, password: Options[:streams_password].type.show(log[:password]))
        %i[properties producer_properties].each { |name| shown[name] = shown[name].keys }
        groups = self.groups.map { |group| { **group, group: group[:group].merge(properties: names(group)) } }
        super.merge(log: shown, groups: groups, routes: routes.map(&:to_h), topics: topics.map(&:to_h),
                    threads: threads&.to_s)
      end

      # A password must not get into a log by way of an error message.
      #
      # @return [String]
      def inspect = "#<streams at #{broker}>"

      private

      def names(group) = group[:group].fetch(:properties).keys
    end
  end
end
