# frozen_string_literal: true

require_relative "copy_notes"
require_relative "cursor"
require_relative "writing"

module Chaton
  class CLI
    module Streams
      # Copies one partition, from where a note says to the end that it had when it was looked at.
      class PartitionCopy
        # After so many records the note is renewed; a copy that goes on reads as many again at most.
        NOTE_EVERY = 100_000

        # What is copied: `source` and `target` are clients, `topic` is called `as` there, `notes` a {CopyNotes},
        # `patience` as {Writing} takes it.
        Job = Struct.new(:source, :target, :topic, :as, :notes, :patience, keyword_init: true)

        # @return [CopyNotes::Note] how far it is known to have come
        attr_reader :note
        # @return [Integer] records copied by this run
        attr_reader :count
        # @return [Integer] the offset it has come to
        attr_reader :position

        # @param from [Hash{String=>Integer}] the partition: number, start, end
        # @param to [Hash{String=>Integer}] that of the target
        # @raise [Chaton::Error] when the target has lost records
        def initialize(job, from:, to:, note:)
          @job = job
          @from = from
          @written = note.sure || (to["end"] - note.target_end)
          raise Chaton::Error, shrunk if @written.negative?

          @note = CopyNotes::Note.new(note.offset, to["end"] - @written)
          @position = note.offset
          @cursor = Cursor.new(job.source, job.topic, from, note.offset)
          @writing = Writing.new(job.target, **job.patience)
          @count = @read = @skipped = @confirmed = 0
        end

        # @return [Integer] the partition
        def number = @from["number"]

        # @return [Integer] the first offset there was
        def start = @from["start"]

        # @return [Integer] the offset it goes to
        def end = @from["end"]

        # @return [Integer] how many are left, at most
        def left = [self.end - @position, 0].max

        # @yieldparam count [Integer] records that were read
        # @raise [Chaton::Error]
        def run
          until (records = @cursor.take).empty?
            write(pass_over(records))
            @read += records.size
            @position = records.last.offset + 1
            yield records.size
            renew if @read >= NOTE_EVERY
          end
          raise Chaton::Error, too_many if @written.positive?

          renew
          @position = self.end
          @done = true
        end

        # @return [Boolean] whether all of it is there
        def done? = @done == true

        private

        # Those that a run before this one has copied after its last note.
        def pass_over(records)
          fresh = records.drop(@written)
          @written -= records.size - fresh.size
          @skipped += records.size - fresh.size
          fresh
        end

        def write(records)
          return if records.empty?

          trusting { @writing.write(records.map { |record| copy_of(record) }) }
          @count += records.size
        end

        def copy_of(record)
          time = record.timestamp_ms
          [@job.as, record.raw, record.key, record.headers, number, (time unless time.negative?)]
        end

        def renew
          trusting { @writing.finish }
          @note = CopyNotes::Note.new(@position, @note.target_end + @read)
          @job.notes.write(number => @note)
          @read = @skipped = 0
          @confirmed = @writing.count
        end

        # Records that failed may have left a gap before others that did not: what the target has more is not to be
        # counted then. Some come twice instead.
        def trusting
          yield
        rescue LogError
          @note = CopyNotes::Note.new(@note.offset, @note.target_end, @skipped + @writing.count - @confirmed)
          @position = @note.offset
          @job.notes.write(number => @note)
          raise
        end

        def shrunk
          "#{@job.as}/#{number} at #{@job.target.address} has fewer records than were copied to it; delete it there " \
            "and begin anew without --resume"
        end

        def too_many
          "#{@job.as}/#{number} at #{@job.target.address} has #{@written} records more than were copied to it: " \
            "somebody else writes there; copy under another name (--as)"
        end
      end
    end
  end
end
