# frozen_string_literal: true

require_relative "commands"

module Chaton
  class CLI
    # chaton streams …: shows and manages the log of records. The subcommands are in cli/streams/. No server is needed:
    # the commands connect to the log.
    module Streams
      extend CommandGroup

      # Name => arguments, and what it does.
      ALL = {
        "topics" => ["[TOPIC]", "print the topics with partitions, records and settings; of one topic each partition"],
        "groups" => ["[GROUP]", "print the consumer groups, their members, and the partitions of each"],
        "lag" => ["[TOPIC]", "print the position of each group in each partition, and the records left"],
        "seek" => ["GROUP TOPIC --to WHERE", "set the offsets at which a group continues; it must have no members"],
        "tail" => ["TOPIC", "print the newest records, or those after --from; --follow waits for more"],
        "produce" => ["TOPIC [VALUE | -]", "write a record, or each line of standard input as one"],
        "plan" => ["", "print what `apply` would change so that topics are as declared; status 2 if anything"],
        "apply" => ["", "create declared topics, add partitions, change settings"],
        "copy" => ["TOPIC", "copy a topic into another log, partition by partition: `--to kafka://HOST:PORT`"],
        "dlq" => ["list [TOPIC] | replay TOPIC", "print dead letters; send them back to their topics"]
      }.freeze

      # Files that define several subcommands.
      FILES = { "topic_actions" => %w[topics plan apply], "group_actions" => %w[groups lag seek] }.freeze

      # Text after the list of commands.
      NOTE = <<~TEXT
        Each takes --json, --broker URL, -C FILE and -e NAME; `chaton streams COMMAND --help` has the rest.

        Examples
          chaton streams plan && echo all topics are as declared
          chaton streams tail events --from -100 --follow
          printf 'one\\ntwo\\n' | chaton streams produce events -
          chaton streams lag --group app
          chaton streams dlq replay events.dead --count 1
      TEXT
    end
  end
end
