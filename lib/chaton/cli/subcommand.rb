# frozen_string_literal: true

require "json"
require_relative "command"

module Chaton
  class CLI
    # The base of commands of a group that open a store: own options, positional arguments, answers for people and
    # programs. The group's base class has OWN, options by name, and COMMON, options that every command of the group
    # takes.
    class Subcommand < Command
      class << self
        def options = [*own_options.map { |name| self::OWN.fetch(name) }, *self::COMMON]

        # @return [Array<Symbol>] of OWN
        def own_options = []

        def switches = ["--json"]

        # @return [String] "show JID"
        def usage
          name = self.name.split("::").last.downcase
          "#{name} #{group::ALL.fetch(name).first}".rstrip
        end

        # @return [CommandGroup] its module
        def group = CLI.const_get(name.split("::")[-2], false)
      end

      private

      # The options of the command line that belong to the configuration.
      def given = @arguments.given.except(*self.class::OWN.keys)

      # @return [Object] the value of one of OWN
      # @raise [ConfigError]
      def value(name)
        option = self.class::OWN.fetch(name)
        given = @arguments.given[name]
        given.nil? ? option.default : option.cast([given])
      rescue Config::Types::Mismatch => e
        raise ConfigError, "#{option.flags.last} #{e.message}"
      end

      # The arguments without a flag. Loads the configuration, so that all mistakes are reported together.
      #
      # @param names [Array<String>] required ones
      # @param more [Integer] how many may follow
      def positional(*names, more: 0)
        rest = @arguments.rest
        missing = names[rest.size]
        group = self.class.group.name[/\w+\z/].downcase
        @arguments.rest_problem("#{missing} is missing: chaton #{group} #{self.class.usage}") if missing
        further = rest.drop(names.size + more)
        @arguments.rest_problem("one argument too many: #{further.join(" ")}") unless further.empty?
        plan
        rest
      end

      def json? = @arguments.switch?("--json")

      # Prints the data as JSON, or the text for people.
      def answer(data, text)
        @out.puts json? ? JSON.pretty_generate(data) : text
        0
      end
    end
  end
end
