# frozen_string_literal: true

require_relative "../nearest"
require_relative "../options"
require_relative "../problem"

module Chaton
  module Config
    # Evaluates a block of a configuration file, with a method for each option of its scope. An unknown name is recorded
    # as a problem and reading goes on, so that all problems are reported together.
    class Section
      # @param scope [Symbol] of options, and the section's name
      # @param further [Array<Symbol>] further names that stand in it
      # @return [Class] the section of a scope
      def self.for(scope, *further)
        options = Options.in(scope)
        Class.new(self) do
          const_set(:SCOPE, scope)
          const_set(:KNOWN, [*options.flat_map(&:names), *further].freeze)
          define options
          define_method(:to_s) { scope.to_s }
        end
      end

      # @param options [Array<Option>] get a method each
      def self.define(options)
        options.each do |option|
          option.names.each { |name| define_method(name) { |*values| assign(option, name, values) } }
        end
      end

      # @param reader [FileReader] the files that are being read
      def initialize(sources, reader)
        @sources = sources
        @reader = reader
      end

      # @param _file [DSL] what the whole file is evaluated in
      def evaluate(_file, &block) = instance_eval(&block)

      # @return [String] the section, as problems name it
      def to_s = "the configuration"

      def inspect = to_s

      # Changes values that are no settings ({Options::FIXED}), so that tests of Chaton itself are quick.
      #
      # @private
      def constants_for_tests(**values)
        values.each { |name, value| @sources.override(Options[name], value) }
      end

      private

      def assign(option, name, values)
        @sources.assign(:file, option, values, here, label: name.to_s)
        nil
      end

      def problem(message, suggestion = nil) = @sources.problem(here, message, suggestion)

      def here = @reader.here

      # Hooks run in this object long after the file was read. An unknown name in them raises as it does everywhere.
      def method_missing(name, *values, &block)
        return super if @reader.over?

        elsewhere(name) || problem("#{name} is not an option of #{self}", Nearest.to(name, self.class::KNOWN))
        nil
      end

      def respond_to_missing?(_name, _include_private = false) = false

      # Reports a name that belongs into another section, or to a value that is fixed.
      #
      # @return [Object, nil] nil when it belongs nowhere
      def elsewhere(name)
        fixed = Options.fixed(name, self.class::SCOPE)
        return problem(fixed.refusal(name)) || true if fixed

        option = Options::EVERYWHERE.find { |one| [*one.names, *one.puma].include?(name) }
        return unless option && option.scope != :cli

        problem("#{name} is not an option of #{self}; write #{usage(option)}")
        true
      end

      def usage(option)
        case option.scope
        when :queue then "web { queue #{option.key}: … }"
        when :topic then "streams { topic \"events\", EventsConsumer, #{option.key}: … }"
        when :web, :jobs, :streams, :memory, :admin, :traces, :live then "#{option.scope} { #{option.written} … }"
        else "#{option.name} outside of the block"
        end
      end
    end
  end
end
