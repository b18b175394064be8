# frozen_string_literal: true

require_relative "options"
require_relative "problem"

module Chaton
  module Config
    # A configuration while its sources are being read: what each of them sets, and everything that is wrong.
    # The command line goes before the file, the file before the environment, and that before Sidekiq's file.
    class Sources
      # In the order in which they go before each other.
      SOURCES = %i[command_line file environment sidekiq].freeze

      # @return [Array<Problem>]
      attr_reader :problems
      # @return [Array<String>] what the user should know although nothing is wrong
      attr_reader :notes
      # @return [Hash{Symbol=>Array<Proc>}]
      attr_reader :hooks
      # @return [Array<TopicLine>]
      attr_reader :topics

      # @param problems [Array<Problem>] found before
      def initialize(problems = [])
        @problems = problems.dup
        @notes = []
        @hooks = Hash.new { |hooks, name| hooks[name] = [] }
        @sources = SOURCES.to_h { |source| [source, {}] }
        @sections = []
        @topics = []
      end

      # Notes that a file has a section.
      def section(name)
        @sections |= [name]
      end

      def section?(name) = @sections.include?(name)

      # Sets an option; a value that breaks its rule becomes a problem.
      #
      # @param source [Symbol] one of {SOURCES}
      # @param values [Array] as written
      # @param label [String] how the user wrote the option
      def assign(source, option, values, origin, label: option.name.to_s)
        value = option.cast(values)
        settings = @sources.fetch(source)
        settings[option.target] = option.type.list? ? [*settings[option.target], value] : value
      rescue Types::Mismatch => e
        problem(origin, "#{label} #{e.message}")
      end

      def problem(origin, message, suggestion = nil)
        @problems << Problem.new(origin, message, suggestion)
      end

      def note(origin, message)
        @notes << "#{origin}: #{message}"
      end

      # @param name [Symbol] an option, or `:binds`
      # @return [Boolean] whether any source sets it
      def set?(name) = @sources.each_value.any? { |settings| settings.key?(name) }

      # Forgets what a source said so far.
      def clear(source, name)
        @sources.fetch(source).delete(name)
      end

      # @param name [Symbol] an option, or `:binds`
      # @return [Object, nil] the value of the source that goes first
      def [](name)
        settings = @sources.values_at(*SOURCES).find { |source| source.key?(name) }
        settings && settings[name]
      end
    end
  end
end
