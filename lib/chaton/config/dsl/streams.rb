# frozen_string_literal: true

require_relative "../class_name"
require_relative "../topic_line"
require_relative "section"

module Chaton
  module Config
    # The block of `streams { }`.
    class StreamsSection < Section.for(:streams, :topic)
      # Keyword of `topic` => its option.
      KEYWORDS = Options.in(:topic).to_h { |option| [option.key, option] }.freeze
      # Keywords that say how a topic is read, which need a consumer.
      READING = Options::CONSUMING.map(&:key).freeze

      # Consumer classes may be named although the application has not defined them yet.
      def evaluate(file, &block) = ClassName.stand_in(file) { super }

      # A topic that is read by a consumer, or that is only declared.
      #
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

        problem("topic #{name.inspect} has #{idle.map { |key| "#{key}:" }.join(", ")} and no consumer that " \
                "reads it; write topic #{name.inspect}, EventsConsumer, …")
      end

      def elsewhere(name)
        return super unless KEYWORDS.key?(name)

        problem("#{name} is not an option of all streams; write topic \"events\", EventsConsumer, #{name}: …")
        true
      end
    end

    # The block of `web { }`.
    class WebSection < Section.for(:web, :queue)
      # Keyword of `queue` => its option.
      KEYWORDS = Options.in(:queue).to_h { |option| [option.key, option] }.freeze

      # The queue of requests that wait for a thread.
      #
      # @param keywords [Hash{Symbol=>Object}] limit:, bytes:, age: (seconds), retry_after: (seconds)
      def queue(*values, **keywords)
        unless values.empty?
          problem("queue takes #{KEYWORDS.keys.map { |key| "#{key}:" }.join(", ")}, not #{values.first.inspect}")
        end
        keywords.each do |key, value|
          if (option = KEYWORDS[key])
            @sources.assign(:file, option, [value], here, label: "queue #{key}:")
          elsif (fixed = Options.fixed(key, :queue))
            problem(fixed.refusal("queue #{key}:"))
          else
            problem("queue has no #{key}:", Nearest.to(key, KEYWORDS.keys)&.then { |name| "#{name}:" })
          end
        end
      end
    end
  end
end
