# frozen_string_literal: true

require_relative "plan"

module Chaton
  class CLI
    module Streams
      # chaton streams apply: makes the topics as they are declared.
      class Apply < Plan
        # @raise [Chaton::Error] when a change is impossible, after all others are done
        def run
          positional
          possible, impossible = changes.partition(&:possible?)
          possible.each { |change| carry_out(change) }
          @out.puts JSON.pretty_generate(possible.map(&:to_h)) if json?
          raise Chaton::Error, impossible.map(&:says).join("\n") unless impossible.empty?

          @out.puts text([]) if possible.empty? && !json?
          0
        end

        private

        def carry_out(change)
          if change.act == :create
            admin.create(change.topic, **change.change)
          else
            admin.public_send(change.act, change.topic, change.change)
          end
          @out.puts "done: #{change.says}" unless json?
        end
      end
    end
  end
end
