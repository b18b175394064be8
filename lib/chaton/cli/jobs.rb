# frozen_string_literal: true

require_relative "commands"

module Chaton
  class CLI
    # chaton jobs …: shows and manages the jobs in the store. The subcommands are in cli/jobs/. No server is needed: the
    # commands connect to the store.
    module Jobs
      extend CommandGroup

      # Name => arguments, and what it does.
      ALL = {
        "stats" => ["", "print counters and sizes"],
        "queues" => ["", "print the queues: how many jobs wait, for how long, whether they are paused"],
        "cron" => ["", "print the entries of `cron` in the configuration, with their last and next ticks"],
        "processes" => ["", "print the processes that run jobs, and their jobs"],
        "list" => ["[PLACE]", "print jobs that wait; a place is queue:NAME, scheduled, retry or dead, none is all"],
        "show" => ["JID", "print all about a job"],
        "retry" => ["JID | --all [PLACE]", "send a job back to its queue now; all of retry, or of another place"],
        "delete" => ["JID | --all PLACE", "remove a job for good; all of a place"],
        "kill" => ["JID", "move a job to the dead set"],
        "cancel" => ["JID", "ask a job to end, waiting or running; it has to check cancelled?"],
        "pause" => ["QUEUE", "stop taking jobs from a queue"],
        "resume" => ["QUEUE", "take jobs from it again"],
        "drain" => ["QUEUE", "remove all jobs that wait in a queue"],
        "enqueue" => ["CLASS [ARGS]", "enqueue a job; arguments as a JSON array: '[7, \"x\"]'"],
        "signal" => ["IDENTITY NAME",
                     "tell a process, on any machine, to take no more jobs (TSTP), to stop (TERM) or to log what it " \
                     "does (TTIN)"],
        "migrate" => ["", "make the tables of a PostgreSQL store, or bring them up to date"],
        "import" => ["", "take over the jobs that wait in the tables of Solid Queue or GoodJob"],
        "backup" => ["FILE", "copy a SQLite store into a file while it is in use"],
        "vacuum" => ["", "give the space of removed jobs in a SQLite store back to the disk while it is in use"]
      }.freeze

      # Files that define several subcommands.
      FILES = { "job_actions" => %w[list show cancel delete kill retry],
                "queue_actions" => %w[queues cron pause resume drain], "process_actions" => %w[processes signal],
                "store_actions" => %w[stats migrate backup vacuum] }.freeze

      # Text after the list of commands.
      NOTE = <<~TEXT
        Each takes --json, --store URL, -C FILE and -e NAME; `chaton jobs COMMAND --help` has the rest.
      TEXT
    end
  end
end
