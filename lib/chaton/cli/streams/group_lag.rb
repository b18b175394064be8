# frozen_string_literal: true

module Chaton
  class CLI
    module Streams
      # The position and lag of groups in topics: those with commits, and those that the configuration lets read.
      class GroupLag
        # One group in one partition. `committed` is nil if it has not begun, `stopped` unless it has stopped there at
        # lost records (on_gap: :stop): then it is the first and the last of them.
        # rubocop:disable Lint/StructNewOverride -- a row has no other use for it.
        Row = Struct.new(:group, :topic, :partition, :committed, :start, :end, :lag, :stopped, keyword_init: true)
        # rubocop:enable Lint/StructNewOverride

        # How the metadata of a commit says where its partition has stopped (crates/streams, tracker/metadata.rs).
        STOPPED = /\Achaton:.*:stopped:(\d+)-(\d+)(?=[;~]|\z)/

        # @param topics [Array<Hash{String=>Object}>] as {Admin#topics} gives them
        # @param committed [Hash{String=>Array<Hash{String=>Object}>}] by group
        # @param streams [#routes] the configuration
        def initialize(topics, committed, streams)
          @topics = topics
          @committed = committed
          @routes = streams.routes
        end

        # @return [Array<Row>] by group, topic and partition
        def rows
          @committed.flat_map do |group, commits|
            by_place = commits.to_h { |commit| [commit.values_at("topic", "partition"), commit] }
            read = [*by_place.keys.map(&:first), *of_routes(group)].uniq
            @topics.select { |topic| read.include?(topic["name"]) }.flat_map { |topic| of(group, topic, by_place) }
          end
        end

        private

        def of_routes(group) = @routes.select { |route| route.group == group }.map(&:topic)

        def of(group, topic, by_place)
          topic["partitions"].map do |partition|
            commit = by_place[[topic["name"], partition["number"]]] || {}
            start, last = partition.values_at("start", "end")
            stopped = STOPPED.match(commit["metadata"].to_s)&.captures&.map(&:to_i)
            Row.new(group: group, topic: topic["name"], partition: partition["number"], committed: commit["offset"],
                    start: start, end: last, lag: lag([commit["offset"] || start, start].max, last, stopped),
                    stopped: stopped)
          end
        end

        # Records that retention has deleted, and lost ones, do not count.
        def lag(from, last, stopped)
          lost = stopped ? [[stopped.last + 1, last].min - [stopped.first, from].max, 0].max : 0
          [last - from - lost, 0].max
        end
      end
    end
  end
end
