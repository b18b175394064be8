# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs enqueue CLASS [ARGS]: the class is not loaded, so its options do not apply.
      class Enqueue < Command
        def self.own_options = %i[queue in]

        def run
          name, text = positional("CLASS", more: 1)
          raise ConfigError, "#{name.inspect} is not a name of a class" unless name.match?(/\A[A-Z]\w*(::[A-Z]\w*)*\z/)

          queue = value(:queue) || "default"
          head = JSON.generate({ "retry" => true, "queue" => queue, "class" => name }).chop
          jid, = client.push_args(queue, head, [args(text)], at)
          answer({ jid: jid, queue: queue }, "job #{jid} is enqueued in #{queue}")
        end

        private

        def creates_store? = true

        def at
          delay_s = value(:in)
          delay_s.positive? ? Time.now.to_f + delay_s : nil
        end

        def args(text)
          found = text ? JSON.parse(text) : []
          return found if found.is_a?(Array)

          raise ConfigError, "the arguments must be a JSON array, not #{text}; write '[#{text}]'"
        rescue JSON::ParserError
          raise ConfigError, "#{text} is not JSON; write the arguments as an array: '[7, \"x\"]'"
        end
      end
    end
  end
end
