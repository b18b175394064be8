# frozen_string_literal: true

require_relative "deserializers"
require_relative "finder"

module Chaton
  module Streams
    # What a worker knows of one route: its consumer's class, found out when its first batch comes.
    class Entry
      # @return [Class]
      attr_reader :klass
      # @return [#call, nil]
      attr_reader :deserializer

      # @param route [Config::StreamsRoute]
      # @raise [ConfigError] when its class is not there, or is no consumer
      def initialize(route, finder: Finder.new)
        @route = route
        @klass = finder.consumer(route.consumer, route.topic)
        @deserializer = Deserializers.of(finder.deserializer(route.deserializer, route.topic))
        @filters = @klass.filters
      end

      # @return [Boolean] whether its consumer wants to hear of the end of a partition
      def eof? = @klass.instance_method(:eof).owner != Consumer

      # @return [Boolean] whether some records are not given to it
      def filters? = !@filters.empty?

      # A new instance.
      #
      # @return [Consumer]
      def instance
        instance = @klass.new
        instance.route = @route
        instance
      end
    end
  end
end
