# frozen_string_literal: true

require_relative "../config/nearest"

module Chaton
  class CLI
    # All commands. Each is a class in its own file, loaded when it is called.
    module Commands
      # Name => what it does.
      ALL = {
        "serve" => "serve the application; what `chaton` does without a command",
        "check" => "load the configuration and the application, print the plan; status 1 if anything is wrong",
        "init" => "write config/chaton.rb from the configuration of Puma, Sidekiq and Karafka",
        "status" => "print what a running server is doing",
        "top" => "watch the same on a screen: rates, threads, memory, and what a worker runs",
        "dashboard" => "print a link that opens the page of a running server, once, and open it",
        "quiet" => "let a running server take no new connections, jobs and records, and finish those it has",
        "stop" => "let a running server finish its running work, and exit",
        "restart" => "let a running server load the new code, worker by worker",
        "jobs" => "show and manage background jobs; `chaton jobs --help` has the commands",
        "streams" => "show and manage streams: topics, groups, lag, dead letters; `chaton streams --help` has the " \
                     "commands",
        "profile" => "show which code allocates, and which objects stay; `chaton profile --help` has the commands"
      }.freeze

      # Old name => name.
      OLD_NAMES = { "trace" => "profile" }.freeze

      # @return [Class]
      def self.find(name)
        require_relative name
        CLI.const_get(name.capitalize, false)
      end
    end

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
