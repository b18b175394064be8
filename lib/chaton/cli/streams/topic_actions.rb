# frozen_string_literal: true

require_relative "command"
require_relative "topic_changes"

module Chaton
  class CLI
    module Streams
      # chaton streams topics [TOPIC]
      class Topics < Command
        # Columns of the list.
        HEAD = %w[topic partitions replication records settings].freeze

        def run
          name, = positional(more: 1)
          return one(admin.topic!(name)) if name

          topics = admin.topics
          rows = topics.map do |topic|
            [topic["name"], topic["partitions"].size, topic["replication"], records(topic["partitions"]),
             settings(topic)]
          end
          text = rows.empty? ? "#{client.address} has no topic" : Table.text(HEAD, rows)
          answer(topics, text)
        end

        private

        def one(topic)
          rows = topic["partitions"].map do |partition|
            [partition["number"], partition["start"], partition["end"], records([partition])]
          end
          settings = topic["settings"].empty? ? "none" : settings(topic)
          answer(topic, "#{topic["name"]}: replication #{topic["replication"]}, settings #{settings}\n" \
                        "#{Table.text(%w[partition start end records], rows)}")
        end

        # By their offsets; a compacted log has fewer.
        def records(partitions) = partitions.sum { |partition| partition["end"] - partition["start"] }

        def settings(topic) = topic["settings"].map { |name, value| "#{name}=#{value}" }.join(" ")
      end

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
