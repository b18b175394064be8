# frozen_string_literal: true

require_relative "../config/nearest"

module Chaton
  class CLI
    # A group of commands (`chaton jobs …`, `chaton profile …`). The module that extends it has ALL, its commands by
    # name; each has its own file, or one that FILES names for several.
    module CommandGroup
      # @param argv [Array<String>] what follows the group's name
      # @return [Array(Class, Array<String>)] the subcommand and its arguments; nil for help
      # @raise [ConfigError] when there is none of that name
      def pick(argv)
        name, *rest = argv
        return if name.nil? || %w[-h --help help].include?(name)
        return [find(name), rest] if self::ALL.key?(name)

        nearest = Config::Nearest.to(name, self::ALL.keys)
        hint = nearest ? "did you mean #{nearest}?" : "there are #{self::ALL.keys.join(", ")}"
        raise ConfigError,
              "chaton #{title} has no command #{name.inspect}; #{hint} (`chaton #{title} --help` tells more)"
      end

      # @return [Class]
      def find(name)
        require_relative "#{title}/#{file(name)}"
        const_get(name.capitalize, false)
      end

      private

      def file(name) = (self::FILES.find { |_, names| names.include?(name) } || [name]).first

      def title = name[/\w+\z/].downcase
    end
  end
end
