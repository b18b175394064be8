# frozen_string_literal: true

require_relative "admin"

module Chaton
  class CLI
    module Streams
      # The records of one partition one after another, from a place to the end that was there when it was asked for.
      class Cursor
        # Records read at once.
        BATCH = 500
        # Longest wait for records that are there. Kafka counts the marks of transactions as offsets too: a partition
        # that ends with one has fewer records than its end says.
        PATIENCE_S = 5.0

        # @return [Integer] the partition
        attr_reader :number
        # @return [Integer] the offset behind the last record that was given
        attr_reader :position

        # @param partition [Hash{String=>Integer}] number, start, end
        # @param from [Integer, String, Array] as a reader takes it
        def initialize(client, topic, partition, from)
          @client = client
          @topic = topic
          @number, @start, @end = partition.values_at("number", "start", "end")
          @from = from
          @position = first
          @waiting = []
          @later = []
        end

        # @return [Native::Record, nil] the next one; nil at the end
        def peek
          @waiting.first || (fill unless finished?)
        end

        # @return [Native::Record, nil] the next one, which is done with then
        def shift
          record = peek
          @position = record.offset + 1 if record
          @waiting.shift
        end

        # @return [Array<Native::Record>] the next ones; none at the end
        def take(max = BATCH)
          peek
          records = @waiting.shift(max)
          records.empty? ? close : @position = records.last.offset + 1
          records
        end

        # The records after the end, as they come; waits for each.
        #
        # @param patience_s [Float] how long one wait lasts
        # @yieldparam record [Native::Record]
        def follow(patience_s: 60.0)
          @later.each { |record| yield record }
          @later.clear
          loop { reader.next(BATCH, patience_s)&.each { |record| yield record } }
        end

        private

        def first
          return @end if @from == "latest"

          @from.is_a?(Integer) ? [@from, @start].max : @start
        end

        # A topic may have more partitions than a process may have files open. It goes on where it is.
        def close
          return unless @reader && @waiting.empty?

          @reader.close
          @reader = nil
          @from = @position
        end

        def reader = @reader ||= @client.reader(@topic, @number, @from.is_a?(Array) ? @from : first)

        def finished? = @gone || @position >= @end

        def fill
          batch = reader.next(BATCH, PATIENCE_S) || once_more
          # Those written since are for {#follow}.
          batch&.each { |record| (record.offset < @end ? @waiting : @later) << record }
          @gone = @waiting.empty?
          @waiting.first
        end

        # Nothing came: because there is nothing, or because nobody answers? The second one is raised.
        def once_more
          Admin.new(@client).topic!(@topic)
          reader.next(BATCH, PATIENCE_S)
        end
      end
    end
  end
end
