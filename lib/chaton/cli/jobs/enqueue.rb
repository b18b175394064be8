# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs enqueue CLASS [ARGS]: the class is not loaded, so that its options do not count.
      class Enqueue < Command
        def self.own = %i[queue in]

        def run
          name, text = positional("CLASS", more: 1)
          raise ConfigError, "#{name.inspect} is no name of a class" unless name.match?(/\A[A-Z]\w*(::[A-Z]\w*)*\z/)

          queue = value(:queue) || "default"
          head = JSON.generate({ "retry" => true, "queue" => queue, "class" => name }).chop
          jid, = client.push_args(queue, head, [args(text)], at)
          answer({ jid: jid, queue: queue }, "job #{jid} is enqueued in #{queue}")
        end

        private

        def at
          delay_s = value(:in)
          delay_s.positive? ? Time.now.to_f + delay_s : nil
        end

        def args(text)
          found = text ? JSON.parse(text) : []
          return found if found.is_a?(Array)

          raise ConfigError, "arguments are a JSON array, not #{text}; write '[#{text}]'"
        rescue JSON::ParserError
          raise ConfigError, "#{text} is no JSON; write the arguments as an array: '[7, \"x\"]'"
        end
      end
    end
  end
end
