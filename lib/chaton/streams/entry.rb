# frozen_string_literal: true

require_relative "deserializers"
require_relative "finder"
require_relative "selection"
require_relative "transaction"

module Chaton
  module Streams
    # What a worker knows of one route: its consumer's class, found out when its first batch comes.
    class Entry
      # @return [Class]
      attr_reader :klass
      # @return [Transaction::Limits]
      attr_reader :limits

      # @param route [Config::StreamsRoute]
      # @param limits [Transaction::Limits]
      # @param finder [Finder]
      # @raise [ConfigError] when its class is not there, or is no consumer
      def initialize(route, limits: Transaction::LIMITS, finder: Finder.new)
        @route = route
        @limits = limits
        @klass = finder.consumer(route.consumer, route.topic)
        @deserializer = Deserializers.of(finder.deserializer(route.deserializer, route.topic))
        @filters = @klass.filters
      end

      # @return [Boolean] whether its consumer wants to hear of the end of a partition
      def eof? = @klass.instance_method(:eof).owner != Consumer

      # @return [Boolean]
      def transactional? = @route.transactional?

      # @return [String] for people
      def name = @klass.name || @route.consumer.to_s

      # A new instance.
      #
      # @return [Consumer]
      def instance = @klass.new.tap { |instance| instance.entry = self }

      # Prepares a consumer for a batch.
      #
      # @param batch [Native::Batch]
      # @param instance [Consumer]
      # @return [Native::Batch, Selection] what it is to consume
      def give(batch, instance)
        instance.batch = batch
        batch.deserializer = @deserializer
        return batch if @filters.empty?

        Selection.of(batch) { |record| @filters.all? { |filter| instance.instance_exec(record, &filter) } }
      end
    end
  end
end
