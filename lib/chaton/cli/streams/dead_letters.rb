# frozen_string_literal: true

require_relative "cursor"

module Chaton
  class CLI
    module Streams
      # The records of a dead-letter topic that were not sent back yet. The progress is stored as commits of a group of
      # its own, so that `chaton streams lag` shows it too.
      class DeadLetters
        GROUP = "chaton-dlq"

        attr_reader :topic

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

      # A record of a dead-letter topic, its origin, and the original record.
      class DeadLetter
        # Headers that were added to the original record.
        ADDED = %w[source_topic source_partition source_offset source_consumer_group source_attempts error_class
                   error_message failed_at source_value_bytes].freeze

        attr_reader :record

        def initialize(record)
          @record = record
        end

        # @return [String, nil] nil: it is not a dead letter
        def topic = added("source_topic")

        def partition = added("source_partition")&.then { |text| Integer(text, 10, exception: false) }

        # @return [Hash{Symbol=>Object}] the added headers
        def cause
          all = ADDED.to_h { |name| [name.to_sym, added(name)] }
          value_omitted? ? all : all.except(:source_value_bytes)
        end

        # @return [Boolean] the record was too large for the dead-letter topic, so that its value was not written
        def value_omitted? = !added("source_value_bytes").nil?

        # @return [Hash{String=>String, Array, nil}] without the added ones. An original header of the same name comes
        #   before the added one.
        def headers
          @record.headers.each_with_object({}) do |(name, value), rest|
            next rest[name] = value unless ADDED.include?(name)

            own = value.is_a?(Array) ? value[0..-2] : []
            rest[name] = own.size == 1 ? own.first : own unless own.empty?
          end
        end

        # @param topic [String] where it goes
        # @param partition [Integer, nil] nil: by its key
        # @return [Array] as `produce_many` takes it; value and key as they are
        def to_row(topic, partition) = [topic, @record.raw, @record.key, headers, partition, nil]

        # @return [String] "events.dead/0 @5"
        def place = "#{@record.topic}/#{@record.partition} @#{@record.offset}"

        private

        def added(name)
          value = @record.headers[name]
          text = value.is_a?(Array) ? value.last : value
          text&.dup&.force_encoding(Encoding::UTF_8)&.scrub
        end
      end
    end
  end
end
