# frozen_string_literal: true

require_relative "../nearest"
require_relative "../problem"

module Chaton
  module Config
    # What a block of a configuration file is evaluated in: a method for each option of its scope. A name that is
    # no option is noted as a problem, and reading goes on, so that all of them are reported at once.
    class Section
      # Gives a class the methods of its options.
      #
      # @param options [Array<Option>]
      def self.define(options)
        options.each do |option|
          [option.name, *option.also].each { |name| define_method(name) { |*values| assign(option, name, values) } }
        end
      end

      # @param reader [FileReader] the files that are being read
      def initialize(sources, reader)
        @sources = sources
        @reader = reader
      end

      # @return [String] the section, as problems name it
      def to_s = "the configuration"
      alias inspect to_s

      private

      def assign(option, name, values)
        @sources.assign(:file, option, values, here, label: name.to_s)
        nil
      end

      def problem(message, suggestion = nil) = @sources.problem(here, message, suggestion)

      def here = @reader.here

      # HookNames of the file run in this object long after the file was read; a name that is missing then is the
      # ordinary error it is everywhere.
      def method_missing(name, *values, &block)
        return super if @reader.over?

        elsewhere(name) || problem("#{name} is not an option of #{self}", Nearest.to(name, self.class::KNOWN))
        nil
      end

      def respond_to_missing?(_name, _include_private = false) = false

      # @return [Object, nil] nil when the name belongs nowhere
      def elsewhere(name)
        option = Options::ALL.find { |one| [one.name, *one.also, *one.puma].include?(name) }
        return unless option && option.scope != :cli

        problem("#{name} is not an option of #{self}; write #{usage(option)}")
        true
      end

      def usage(option)
        case option.scope
        when :queue then "web { queue #{option.key}: … }"
        when :topic then "streams { topic \"events\", EventsConsumer, #{option.key}: … }"
        when :web, :jobs, :streams, :memory then "#{option.scope} { #{option.name} … }"
        else "#{option.name} outside of the block"
        end
      end
    end
  end
end
