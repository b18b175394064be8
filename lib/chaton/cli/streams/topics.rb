# frozen_string_literal: true

require_relative "command"

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
    end
  end
end
