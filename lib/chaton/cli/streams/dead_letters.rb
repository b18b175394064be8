# frozen_string_literal: true

require_relative "cursor"
require_relative "dead_letter"

module Chaton
  class CLI
    module Streams
      # The records of a dead-letter topic that were not sent back yet. The progress is stored as commits of a group of
      # its own, so that `chaton streams lag` shows it too.
      class DeadLetters
        GROUP = "chaton-dlq"

        attr_reader :topic

        # @param topic [Hash{String=>Object}]
        # @param partitions [Array<Hash{String=>Integer}>] those that are read
        def initialize(client, admin, topic, partitions)
          @admin = admin
          @topic = topic["name"]
          @partitions = partitions
          commits = admin.committed(GROUP).select { |commit| commit["topic"] == @topic }
          @done = commits.to_h { |commit| [commit["partition"], commit["offset"]] }
          @cursors = partitions.map { |one| Cursor.new(client, @topic, one, @done[one["number"]] || "earliest") }
        end

        # @return [Integer] how many wait, by their offsets
        def left
          @partitions.sum { |one| [one["end"] - [@done[one["number"]] || 0, one["start"]].max, 0].max }
        end

        # @return [Array<DeadLetter>] the first ones, partition by partition
        def first(count)
          found = []
          each_some { |_, letters| found.concat(letters.first(count - found.size)).size < count or return found }
          found
        end

        # Yields them partition by partition, in batches.
        #
        # @param at_most [#call] size of the next batch
        # @yieldparam number [Integer] the partition
        def each_some(at_most = -> { Cursor::BATCH })
          @cursors.each do |cursor|
            until (records = cursor.take(at_most.call)).empty?
              yield cursor.number, records.map { |record| DeadLetter.new(record) }
            end
          end
        end

        # Records that those before this offset are sent back.
        #
        # @param number [Integer] partition
        def done(number, offset)
          @admin.set_committed(GROUP, [{ topic: @topic, partition: number, offset: offset, metadata: "" }])
          @done[number] = offset
        end
      end
    end
  end
end
