# frozen_string_literal: true

require_relative "cursor"

module Chaton
  class CLI
    module Streams
      # Sets the offsets of consumer groups in a copy, so that they continue where they are in the original.
      class GroupTransfer
        # Groups of Chaton's own commands.
        OURS = /\Achaton-(copy-\h+|dlq)\z/

        # @param as [String] its name there
        def initialize(source, source_admin, target_admin, topic:, as:)
          @source = source
          @source_admin = source_admin
          @target_admin = target_admin
          @topic = topic
          @as = as
        end

        # @param copies [Hash{Integer=>PartitionCopy}] finished ones, by partition
        # @return [Array<Hash{Symbol=>Object}>] group, partitions and offsets that were set
        # @raise [StreamRefused] while a group has members in the target
        def run(copies)
          names = @source_admin.groups.map { |group| group["name"] }.grep_v(OURS)
          names.filter_map do |name|
            commits = @source_admin.committed(name).select { |commit| commit["topic"] == @topic }
            transfer(name, commits, copies) unless commits.empty?
          end
        end

        private

        def transfer(name, commits, copies)
          moved = commits.map do |commit|
            copied = copies.fetch(commit["partition"])
            offset = copied.note.target_end - left(commit, copied)
            { topic: @as, partition: commit["partition"], offset: offset, metadata: "" }
          end
          @target_admin.set_committed(name, moved)
          { group: name, offsets: moved.to_h { |one| [one[:partition], one[:offset]] } }
        end

        # The copied records that the group has not read. A partition of Kafka may have offsets without a record, so
        # they are counted.
        def left(commit, copied)
          from, to = [commit["offset"], copied.start].max, copied.note.offset
          return [to - from, 0].max if @source.address.start_with?("log:")

          cursor = Cursor.new(@source, @topic, { "number" => copied.number, "start" => from, "end" => to }, from)
          count = 0
          until (records = cursor.take).empty?
            count += records.size
          end
          count
        end
      end
    end
  end
end
