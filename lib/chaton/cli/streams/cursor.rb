# frozen_string_literal: true

require_relative "admin"

module Chaton
  class CLI
    module Streams
      # Reads the records of one partition, from an offset to the end that the partition had at the start.
      class Cursor
        # Records of one read.
        BATCH = 500
        # Longest wait for existing records. In Kafka the markers of transactions have offsets too, so a partition may
        # have fewer records than its end says.
        WAIT_S = 5.0
        # Damaged places in a row that are told of; then the error is raised.
        DAMAGE_MAX = 1_000

        attr_reader :number
        # @return [Integer] the offset after the last record that was returned
        attr_reader :position

        # @param partition [Hash{String=>Integer}] number, start, end
        # @param from [Integer, String, Array] as a reader takes it
        # @param notes [#puts] is told of lost records, behind which reading continues
        def initialize(client, topic, partition, from, notes: $stderr)
          @notes = notes
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

        # @return [Native::Record, nil] the next one, which is removed
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

        # Yields the records after the end as they arrive.
        #
        # @param wait_s [Float] length of one wait
        def follow(wait_s: 60.0)
          @later.each { |record| yield record }
          @later.clear
          loop { read(wait_s)&.each { |record| yield record } }
        end

        private

        def first
          return @end if @from == "latest"

          @from.is_a?(Integer) ? [@from, @start].max : @start
        end

        # A topic may have more partitions than a process may open files. Reading continues at the same offset.
        def close
          return unless @reader && @waiting.empty?

          @reader.close
          @reader = nil
          @from = @position
        end

        def reader = @reader ||= @client.reader(@topic, @number, @from.is_a?(Array) ? @from : first)

        def finished? = @gone || @position >= @end

        def fill
          batch = read(WAIT_S) || once_more
          # Records written since the start are for {#follow}.
          batch&.each { |record| (record.offset < @end ? @waiting : @later) << record }
          @gone = @waiting.empty?
          @waiting.first
        end

        # Nothing arrived. The request for the topic raises if the log does not answer.
        def once_more
          Admin.new(@client).topic!(@topic)
          read(WAIT_S)
        end

        def read(wait_s)
          damage = 0
          open = reader
          begin
            open.next(BATCH, wait_s)
          rescue StreamCorrupt => e
            raise if (damage += 1) > DAMAGE_MAX

            @notes.puts "chaton: #{e.message}"
            retry
          end
        end
      end
    end
  end
end
