# frozen_string_literal: true

require_relative "copy_progress"
require_relative "cursor"
require_relative "record_writer"

module Chaton
  class CLI
    module Streams
      # Copies one partition, from its last position to the end that it had at the start.
      class PartitionCopy
        # Records after which the position is stored; a resumed copy reads at most as many again.
        STORE_EVERY = 100_000

        # What is copied: `source` and `target` are clients, `topic` has the name `as` there, `notes` is a
        # {CopyProgress}, `timeouts` those of {RecordWriter}.
        Job = Struct.new(:source, :target, :topic, :as, :notes, :timeouts, keyword_init: true)

        # @return [CopyProgress::Position] its last stored position
        attr_reader :note
        # @return [Integer] records copied by this run
        attr_reader :count
        # @return [Integer] the current offset
        attr_reader :position

        # @param from [Hash{String=>Integer}] the partition: number, start, end
        # @param to [Hash{String=>Integer}] that of the target
        # @raise [Chaton::Error] when the target has lost records
        def initialize(job, from:, to:, note:)
          @job = job
          @from = from
          @written = note.sure || (to["end"] - note.target_end)
          raise Chaton::Error, shrunk if @written.negative?

          @note = CopyProgress::Position.new(note.offset, to["end"] - @written)
          @position = note.offset
          @cursor = Cursor.new(job.source, job.topic, from, note.offset)
          @writer = RecordWriter.new(job.target, **job.timeouts)
          @count = @read = @skipped = @confirmed = 0
        end

        # @return [Integer] the partition
        def number = @from["number"]

        # @return [Integer] the first offset there was
        def start = @from["start"]

        # @return [Integer] the offset at which it ends
        def end = @from["end"]

        # @return [Integer] how many are left, at most
        def left = [self.end - @position, 0].max

        # @yieldparam count [Integer] records that were read
        # @raise [Chaton::Error]
        def run
          until (records = @cursor.take).empty?
            write(skip_copied(records))
            @read += records.size
            @position = records.last.offset + 1
            yield records.size
            store_position if @read >= STORE_EVERY
          end
          raise Chaton::Error, too_many if @written.positive?

          store_position
          @position = self.end
          @done = true
        end

        # @return [Boolean] whether everything is copied
        def done? = @done == true

        private

        # Skips records that an earlier run has copied after it stored its position.
        def skip_copied(records)
          fresh = records.drop(@written)
          @written -= records.size - fresh.size
          @skipped += records.size - fresh.size
          fresh
        end

        def write(records)
          return if records.empty?

          storing_failure { @writer.write(records.map { |record| copy_of(record) }) }
          @count += records.size
        end

        def copy_of(record)
          time = record.timestamp_ms
          [@job.as, record.raw, record.key, record.headers, number, (time unless time.negative?)]
        end

        def store_position
          storing_failure { @writer.finish }
          @note = CopyProgress::Position.new(@position, @note.target_end + @read)
          @job.notes.write(number => @note)
          @read = @skipped = 0
          @confirmed = @writer.count
        end

        # Failed records may have left a gap before others that were written, so the target's further records must not
        # be counted then. Some are copied twice instead.
        def storing_failure
          yield
        rescue StreamError
          @note = CopyProgress::Position.new(@note.offset, @note.target_end, @skipped + @writer.count - @confirmed)
          @position = @note.offset
          @job.notes.write(number => @note)
          raise
        end

        def shrunk
          "#{@job.as}/#{number} at #{@job.target.address} has fewer records than were copied to it; delete it there " \
            "and start again without --resume"
        end

        def too_many
          "#{@job.as}/#{number} at #{@job.target.address} has #{@written} records more than were copied to it: " \
            "another program writes there; copy under another name (--as)"
        end
      end
    end
  end
end
