# frozen_string_literal: true

require_relative "deserializers"
require_relative "finder"
require_relative "selection"
require_relative "transaction"

module Chaton
  module Streams
    # Makes and prepares the consumers of a route. Their class is looked up at the first batch.
    class ConsumerFactory
      # @return [Class]
      attr_reader :klass
      attr_reader :limits

      # @param route [Config::StreamsRoute]
      # @param limits [Transaction::Limits]
      # @param finder [Finder]
      # @raise [ConfigError] when its class is missing, or not a consumer
      def initialize(route, limits: Transaction::LIMITS, finder: Finder.new)
        @route = route
        @limits = limits
        @klass = finder.consumer(route.consumer, route.topic)
        @deserializer = Deserializers.of(finder.deserializer(route.deserializer, route.topic))
        @filters = @klass.filters
        @bare = @klass.instance_method(:consume).arity.zero?
      end

      # @return [Boolean] whether its consumer defines `eof` or `eofed`
      def eof? = %i[eof eofed].any? { |hook| @klass.instance_method(hook).owner != Consumer }

      def transactional? = @route.transactional?

      # @return [Boolean] whether a batch is done only when what it has produced is durable
      def wait_for_deliveries? = @route.wait_for_deliveries?

      # @return [String] for people
      def name = @klass.name || @route.consumer.to_s

      # @return [Consumer] a new instance
      def instance = @klass.new.tap { |instance| instance.factory = self }

      # Calls `consume`, which takes the batch or, as in Karafka, reads `messages`.
      #
      # @param given [Native::Batch, Selection]
      def consume(instance, given)
        instance.messages = given
        @bare ? instance.consume : instance.consume(given)
      end

      # Prepares a consumer for a batch.
      #
      # @param batch [Native::Batch]
      # @param instance [Consumer]
      # @return [Native::Batch, Selection] the records that pass its filters
      def prepare(batch, instance)
        instance.batch = batch
        batch.deserializer = @deserializer
        return batch if @filters.empty?

        Selection.of(batch) { |record| @filters.all? { |filter| instance.instance_exec(record, &filter) } }
      end
    end
  end
end
