# frozen_string_literal: true

require "json"
require_relative "command"

module Chaton
  class CLI
    # What the commands of a group have in common that look into a store: options of their own, arguments that belong
    # to no flag, answers for people and programs. Their base class has OWN, options by name, and COMMON, those every
    # command of the group takes.
    class Subcommand < Command
      class << self
        def options = [*own.map { |name| self::OWN.fetch(name) }, *self::COMMON]

        # @return [Array<Symbol>] of OWN
        def own = []

        def switches = ["--json"]

        # @return [String] "show JID"
        def usage
          name = self.name.split("::").last.downcase
          "#{name} #{group::ALL.fetch(name).first}".rstrip
        end

        # @return [Group] the module it stands in
        def group = CLI.const_get(name.split("::")[-2], false)
      end

      private

      # What the configuration has to know of the command line.
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

      # The arguments that belong to no flag. Loads the configuration, so that all mistakes are told at once.
      #
      # @param names [Array<String>] those there have to be
      # @param more [Integer] how many may follow
      # @return [Array<String>]
      def positional(*names, more: 0)
        rest = @arguments.rest
        missing = names[rest.size]
        group = self.class.group.name[/\w+\z/].downcase
        @arguments.problem("#{missing} is missing: chaton #{group} #{self.class.usage}") if missing
        further = rest.drop(names.size + more)
        @arguments.problem("one argument too many: #{further.join(" ")}") unless further.empty?
        plan
        rest
      end

      def json? = @arguments.switch?("--json")

      # Prints the data, or what it says to people.
      #
      # @return [Integer] exit status
      def answer(data, text)
        @out.puts json? ? JSON.pretty_generate(data) : text
        0
      end
    end
  end
end
