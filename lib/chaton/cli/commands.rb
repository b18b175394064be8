# frozen_string_literal: true

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

      # Name before => name.
      BEFORE = { "trace" => "profile" }.freeze

      # @return [Class]
      def self.find(name)
        require_relative name
        CLI.const_get(name.capitalize, false)
      end
    end
  end
end
