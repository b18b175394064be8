# frozen_string_literal: true

require "digest/sha2"
require "json"
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

      # The progress of a copy, stored in the source log as commits of a group of its own, so that `chaton streams lag`
      # shows it too.
      class CopyProgress
        # When the target's partition ended at `target_end`, the copy had come to `offset` in the source's. All further
        # records of the target were copied since, in order, so a copy resumes exactly where it stopped, even if it was
        # killed. This holds while no other program writes to the target, and until a record fails: then `sure` is the
        # number of records that are certainly there.
        Position = Struct.new(:offset, :target_end, :sure)

        attr_reader :group

        # @param admin [Admin] of the source
        # @param target [String] address of the other log
        # @param as [String] the topic's name there
        def initialize(admin, topic, target:, as:)
          @admin = admin
          @topic = topic
          @group = "chaton-copy-#{Digest::SHA256.hexdigest("#{topic}\n#{target}\n#{as}")[0, 8]}"
        end

        # @return [Hash{Integer=>Position}] by partition
        def read
          @admin.committed(@group).select { |commit| commit["topic"] == @topic }.to_h do |commit|
            [commit["partition"],
             Position.new(commit["offset"], *JSON.parse(commit["metadata"]).values_at("end", "sure"))]
          end
        end

        def write(notes)
          @admin.set_committed(@group, notes.map do |partition, note|
            { topic: @topic, partition: partition, offset: note.offset,
              metadata: JSON.generate({ end: note.target_end, sure: note.sure }.compact) }
          end)
        end
      end
    end
  end
end
