# frozen_string_literal: true

require_relative "../class_name"
require_relative "../options"
require_relative "../topic_line"
require_relative "section"

module Chaton
  module Config
    # Inside `streams { }`.
    class StreamsSection < Section
      define Options.in(:streams)

      # Keyword of `topic` => its option.
      KEYWORDS = Options.in(:topic).to_h { |option| [option.key, option] }.freeze
      # Keywords that say how a topic is read: without a consumer nobody reads it.
      READING = Options::CONSUMING.map(&:key).freeze
      # What a misspelt name may have been meant to be.
      KNOWN = [*Options.in(:streams).flat_map { |option| [option.name, *option.also] }, :topic].freeze

      # A topic that is read by a consumer, or that is only declared.
      #
      # @param name [String, Symbol]
      # @param consumer [Class, String, Symbol, nil] a {Consumer}
      # @param keywords [Hash{Symbol=>Object}] see docs/CONFIGURATION.md
      def topic(name = nil, consumer = nil, *rest, **keywords)
        return problem("topic takes a name, a class and keywords, not #{rest.first.inspect} too") unless rest.empty?

        name = cast(Types::TopicName.new, name, "topic") or return
        found = ClassName.of(consumer)
        return refuse_consumer(name, consumer) if found.nil? && consumer

        given = values(name, keywords)
        check_reading(name, given) if found.nil?
        @sources.topics << TopicLine.new(name, found, given, here)
        nil
      end

      def to_s = "streams"

      private

      def values(name, keywords)
        keywords.each_with_object({}) do |(key, value), given|
          next unknown(name, key) unless (option = KEYWORDS[key])

          given[key] = option.cast([value])
        rescue Types::Mismatch => e
          problem("topic #{name.inspect} #{key}: #{e.message}")
        end.freeze
      end

      def unknown(name, key)
        problem("topic #{name.inspect} has no #{key}:", Nearest.to(key, KEYWORDS.keys)&.then { |near| "#{near}:" })
      end

      def cast(type, value, label)
        type.cast(value)
      rescue Types::Mismatch => e
        problem("#{label} #{e.message}")
        nil
      end

      def refuse_consumer(name, consumer)
        problem("topic #{name.inspect} needs a consumer class, or its name as a String, not #{consumer.inspect}")
      end

      def check_reading(name, given)
        idle = given.keys & READING
        return if idle.empty?

        problem("topic #{name.inspect} has #{idle.map { |key| "#{key}:" }.join(", ")} and no consumer: nobody reads " \
                "it; write topic #{name.inspect}, EventsConsumer, …")
      end

      def elsewhere(name)
        return super unless KEYWORDS.key?(name)

        problem("#{name} is no option of streams as a whole; write topic \"events\", EventsConsumer, #{name}: …")
        true
      end
    end
  end
end
