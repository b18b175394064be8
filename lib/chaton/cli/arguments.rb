# frozen_string_literal: true

require_relative "../config/nearest"
require_relative "../config/options"
require_relative "../config/problem"

module Chaton
  class CLI
    # Parses the arguments of a command by the definitions of the options. Mistakes are collected, not raised, so that
    # they are reported together with those of the configuration file.
    class Arguments
      # Flags of every command.
      COMMON = { "-h" => "--help", "--help" => "--help", "-v" => "--version", "--version" => "--version" }.freeze

      # What a setting that only files have would be called here => its name.
      OF_FILES = Config::Options::ALL.select { |option| option.flags.empty? }.to_h do |option|
        ["--#{option.name.to_s.sub(/_(s|ms)\z/, "").tr("_", "-")}", option.name]
      end.freeze

      # A value after an option; a number may be negative.
      VALUE = /\A(?!-)|\A-\d*\z/

      # @return [Hash{Symbol=>Object}] the given options, as Config.load takes them
      attr_reader :given
      # @return [Array<String>] arguments without a flag
      attr_reader :rest, :problems

      # @param argv [Array<String>] without the command
      # @param options [Array<Config::Option>] those the command takes
      # @param switches [Array<String>] further flags without a value
      def initialize(argv, options:, switches: [])
        @options = options.flat_map { |option| option.flags.map { |flag| [flag, option] } }.to_h
        @switches = switches.to_h { |switch| [switch, switch] }.merge(COMMON)
        @given = {}
        @rest = []
        @problems = []
        @on = []
        parse(argv.dup)
        @understood = @problems.empty?
      end

      # @param name [String] such as "--json"
      def switch?(name) = @on.include?(name)

      def problem(message, suggestion = nil)
        @problems << Config::Problem.new(Config::COMMAND_LINE, message, suggestion)
      end

      # A problem of the arguments without a flag. After an option that is not known they may be its value.
      def rest_problem(...)
        problem(...) if @understood
      end

      private

      def parse(argv)
        until argv.empty?
          argument = argv.shift
          return @rest.concat(argv) if argument == "--"

          argument.start_with?("-") && argument != "-" ? flag(argument, argv) : @rest << argument
        end
      end

      def flag(argument, argv)
        name, value = parts(argument)
        return switch(name, value) if @switches.key?(name)
        return negated(name, value) if name.start_with?("--no-") && switchable?(name.sub("--no-", "--"))

        option = @options[name]
        return unknown(name) unless option
        return bare(option, name, value) if option.placeholder.nil?

        value ||= argv.shift if argv.first&.match?(VALUE)
        value ? give(option, value) : problem("#{name} needs a value: #{name} #{option.placeholder}")
      end

      # --workers=2, --workers; -w2, -w.
      def parts(argument)
        return argument.split("=", 2) if argument.start_with?("--")

        [argument[0, 2], argument.length > 2 ? argument[2..].delete_prefix("=") : nil]
      end

      def switch(name, value)
        return problem("#{name} takes no value, not #{value.inspect}") if value

        @on << @switches.fetch(name)
      end

      def bare(option, name, value)
        value ? problem("#{name} takes no value, not #{value.inspect}") : give(option, true)
      end

      def negated(name, value)
        return problem("#{name} takes no value, not #{value.inspect}") if value

        give(@options.fetch(name.sub("--no-", "--")), false)
      end

      def switchable?(name) = @options[name]&.type.is_a?(Config::Types::Switch)

      def give(option, value)
        @given[option.name] = option.type.list? ? [*@given[option.name], value] : value
      end

      def unknown(name)
        known = @options.keys + @switches.keys
        names = name.start_with?("--") ? known | OF_FILES.keys : known
        nearest = names.include?(name) ? name : Config::Nearest.to(name, names)
        return problem("#{name} is not an option", nearest) if nearest.nil? || known.include?(nearest)

        problem("#{name} is not an option: #{OF_FILES.fetch(nearest)} can only be set in a configuration file " \
                "(docs/CONFIGURATION.md)")
      end
    end
  end
end
