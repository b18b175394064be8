# frozen_string_literal: true

module Chaton
  class CLI
    # The commands there are. Each is a class of its own file, loaded when it is called.
    module Commands
      # Name => what it does.
      ALL = {
        "serve" => "serve the application; what `chaton` does without a command",
        "run" => "run any command with the allocator and heap a server would have; `chaton run -- COMMAND`",
        "check" => "load the configuration and the application, print the plan; status 1 if anything is wrong",
        "status" => "print what a running server is doing",
        "top" => "the same on a terminal, every two seconds, until Ctrl-C",
        "quiet" => "let a running server take no new connections, jobs and records, and go on with those it has",
        "stop" => "let a running server finish what it runs, and leave",
        "restart" => "let a running server load the new code, worker by worker",
        "jobs" => "look at background jobs, and act on them; `chaton jobs --help` has the commands",
        "streams" => "look at streams, and act on them: topics, groups, lag, dead letters; `chaton streams --help` " \
                     "has the commands",
        "trace" => "see which code allocates, and what stays; `chaton trace --help` has the commands"
      }.freeze

      # @return [Class]
      def self.find(name)
        require_relative name
        CLI.const_get(name.capitalize, false)
      end
    end
  end
end
