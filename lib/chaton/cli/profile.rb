# frozen_string_literal: true

require_relative "commands"

module Chaton
  class CLI
    # chaton profile …: which code allocates, and which objects stay, in the workers of a running server. The
    # subcommands are in cli/profile/.
    module Profile
      extend CommandGroup

      # Name => arguments, and what it does.
      ALL = {
        "start" => ["", "begin to follow a sample of the allocated objects"],
        "stop" => ["", "stop; the profile is kept for `report` until the next start"],
        "status" => ["", "print which workers profile, for how long, and how much they have recorded"],
        "report" => ["", "print or write what was recorded: as text, a flame graph, or for a profile viewer"]
      }.freeze

      # Files that define several subcommands.
      FILES = { "command" => %w[start stop status] }.freeze

      # Text after the list of commands.
      NOTE = <<~TEXT
        Each takes --worker N, --control-socket FILE, -C FILE and -e NAME; `chaton profile COMMAND --help` has the rest.

        A stack is counted by the bytes and objects that are alive, that were freed, or both (--by). What stays alive
        through many collections and grows from one report to the next is a leak: its first line shows where.
        Profiling ends with its worker. A worker that is started later does not profile, unless the configuration has
        memory { profile true }. On Ruby 3.2 and newer a report also tells how long work waited for Ruby's global lock.

        Examples
          chaton profile start && sleep 60 && chaton profile report
          chaton profile report --output profile.svg        a flame graph for a browser
          chaton profile report --output profile.pb.gz      for pprof; .collapsed is for speedscope, .txt is text
          chaton profile start --every 1 --duty 1         follow every object; costs much more
      TEXT
    end
  end
end
