# frozen_string_literal: true

require "digest/sha2"
require "json"

module Chaton
  class CLI
    module Streams
      # The progress of a copy, stored in the source log as commits of a group of its own, so that `chaton streams lag`
      # shows it too.
      class CopyProgress
        # When the target's partition ended at `target_end`, the copy had come to `offset` in the source's. All further
        # records of the target were copied since, in order, so a copy resumes exactly where it stopped, even if it was
        # killed. This holds while no other program writes to the target, and until a record fails: then `sure` is the
        # number of records that are certainly there.
        Position = Struct.new(:offset, :target_end, :sure)

        # @return [String] the group
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

        # @param notes [Hash{Integer=>Position}]
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
