# frozen_string_literal: true

require_relative "group"
require_relative "commands"

module Chaton
  class CLI
    # chaton streams …: what is in the log, and acting on it. Each subcommand is a class of its own file in
    # cli/streams/. No server is needed: they talk to the log.
    module Streams
      extend Group

      # Name => arguments, and what it does.
      ALL = {
        "topics" => ["[TOPIC]", "print the topics: partitions, records, settings; of one, each partition"],
        "groups" => ["[GROUP]", "print the consumer groups, who is in them, and what each member reads"],
        "lag" => ["[TOPIC]", "print how far each group has come in each partition, and what is left"],
        "tail" => ["TOPIC", "print the newest records, or those from --from on; --follow waits for more"],
        "produce" => ["TOPIC [VALUE | -]", "write a record, or each line of standard input as one"],
        "plan" => ["", "print what `apply` would do to make the topics what the configuration declares; status 2 if " \
                       "anything"],
        "apply" => ["", "create declared topics, give them more partitions, set their settings"],
        "copy" => ["TOPIC", "copy a topic into another log, partition by partition: `--to kafka://HOST:PORT`"],
        "dlq" => ["list [TOPIC] | replay TOPIC", "print dead letters; send them back to where they came from"]
      }.freeze

      # What there is to know beside the list of commands.
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
