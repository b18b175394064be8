# frozen_string_literal: true

require_relative "group"
require_relative "commands"

module Chaton
  class CLI
    # chaton trace …: which code allocates, and what of it stays, in the workers of a running server. Each subcommand
    # is a class of its own file in cli/trace/.
    module Trace
      extend Group

      # Name => arguments, and what it does.
      ALL = {
        "start" => ["", "begin to look at a sample of the objects that are allocated, and at what becomes of them"],
        "stop" => ["", "end it; what was seen is kept for `report` until the next start"],
        "status" => ["", "print who traces, since when, and how much was seen"],
        "top" => ["", "print the stacks that hold most, every two seconds, until Ctrl-C; into a pipe once"],
        "report" => ["", "print or write what was seen: as text, a page, or for a viewer of profiles"]
      }.freeze

      # What there is to know beside the list of commands.
      NOTE = <<~TEXT
        Each takes --worker N, --control-socket FILE, -C FILE and -e NAME; `chaton trace COMMAND --help` has the rest.

        A stack is counted by the bytes and objects that are alive, that were freed, or both (--by). What stays alive
        through many collections, and grows from one report to the next, is a leak: its first line says where.
        Tracing ends with its worker. One that is started later does not trace, unless the configuration says so:
        memory { trace true }. On Ruby 3.2 and newer a report also tells how long work waited for Ruby's global lock.

        Examples
          chaton trace start && sleep 60 && chaton trace report
          chaton trace report --output trace.html       a flame graph to look at in a browser
          chaton trace report --output trace.pb.gz      for pprof; .json is for speedscope, .txt is text
          chaton trace start --every 1 --duty 1         look at every object; costs much more
      TEXT
    end
  end
end
