# frozen_string_literal: true

require_relative "command"
require_relative "topic_changes"

module Chaton
  class CLI
    module Streams
      # chaton streams plan: compares the declared topics with those of the log.
      class Plan < Command
        # Exit status when something differs.
        DIFFERS = 2

        def run
          positional
          found = changes
          answer(found.map(&:to_h), text(found))
          found.empty? ? 0 : DIFFERS
        end

        private

        def makes_log? = true

        def changes
          TopicChanges.new(plan.streams.topics, admin.topics, copies: !client.address.start_with?("log:")).changes
        end

        def text(found)
          return "#{plan.streams.topics.size} topics of #{client.address} are as declared" if found.empty?

          found.map(&:says).join("\n")
        end
      end
    end
  end
end
