# frozen_string_literal: true

module Chaton
  module Config
    # A `topic` as a file has it: its name, who reads it (the name of a class, a class without one, or nil), the
    # keywords that were given, and where it stands.
    TopicLine = Struct.new(:name, :consumer, :given, :origin) do
      # @param key [Symbol] a keyword of `topic`
      # @return [Object] its value, or its default
      def [](key)
        given.fetch(key) { Options[:"topic_#{key}"].default }
      end

      # @return [Symbol] what keeps its order
      def order = self[:order] || (self[:concurrency] > 1 ? :key : :partition)

      # @return [Integer, nil] nil: for ever
      def retries
        given.fetch(:retries) { self[:dead_letter] && TopicLine::DEAD_LETTER_RETRIES }
      end

      # @return [String] as problems name it
      def to_s = "topic #{name.inspect}"
    end
    # Where there is a dead-letter topic and no number.
    TopicLine::DEAD_LETTER_RETRIES = 5
  end
end
