# frozen_string_literal: true

require_relative "options"
require_relative "problem"

module Chaton
  module Config
    # The values that each source of a configuration sets, and all problems. The command line overrides the file, the
    # file the environment, and that Sidekiq's file.
    class Sources
      # Each overrides those after it.
      PRECEDENCE = %i[command_line file environment sidekiq].freeze

      attr_reader :problems
      # @return [Array<String>] notes for the user that are not problems
      attr_reader :notes
      # @return [Array<String>] what the user should change, though the server starts
      attr_reader :warnings, :hooks, :topics, :services

      # @param problems [Array<Problem>] found before
      # @param only [Array<Symbol>, nil] the scopes whose problems count; those of others become warnings
      def initialize(problems = [], only: nil)
        @problems = problems.dup
        @only = only
        @notes = []
        @warnings = []
        @hooks = Hash.new { |hooks, name| hooks[name] = [] }
        @values = PRECEDENCE.to_h { |source| [source, {}] }
        @sections = []
        @topics = []
        @services = []
      end

      def section?(name) = @sections.include?(name)

      # Evaluates a section. One that raises stays the one to which the error belongs.
      def within(name)
        @sections |= [name]
        @within = name
        yield
        @within = nil
      end

      # Sets an option; a value that breaks its rule becomes a problem.
      #
      # @param source [Symbol] one of {PRECEDENCE}
      # @param label [String] how the user wrote the option
      def assign(source, option, values, origin, label: option.name.to_s)
        value = option.cast(values)
        settings = @values.fetch(source)
        settings[option.target] = option.type.list? ? [*settings[option.target], value] : value
      rescue Types::Mismatch => e
        problem(origin, "#{label} #{e.message}", scope: option.scope)
      end

      # Changes a value that no source can set.
      #
      # @param option [Option] one of {Options::FIXED}
      def override(option, value) = @values.fetch(:file)[option.name] = value

      # @param scope [Symbol, nil] the scope of options that it belongs to
      def problem(origin, message, suggestion = nil, scope: @within)
        problem = Problem.new(origin, message, suggestion)
        return warning(problem.to_s) if @only && !@only.include?(scope)

        @problems << problem
      end

      def note(origin, message)
        @notes << "#{origin}: #{message}"
      end

      # Keeps a warning (a String that says what to do), shown once the configuration is read.
      def warning(message)
        @warnings << message
      end

      # @param name [Symbol] an option, or `:binds`
      # @return [Boolean] whether any source sets it
      def set?(name) = @values.each_value.any? { |settings| settings.key?(name) }

      # @param name [Symbol] an option, or `:binds`
      # @return [Boolean] whether the command line or the file sets it
      def written?(name) = @values.values_at(:command_line, :file).any? { |settings| settings.key?(name) }

      # Drops what a source has set so far.
      def clear(source, name)
        @values.fetch(source).delete(name)
      end

      # @param name [Symbol] an option, or `:binds`
      # @return [Object, nil] the value of the first source that sets it
      def [](name)
        settings = @values.values_at(*PRECEDENCE).find { |source| source.key?(name) }
        settings && settings[name]
      end
    end
  end
end
