# frozen_string_literal: true

require "json"

module Chaton
  class CLI
    module Streams
      # Reads and changes topics and groups of a log.
      class Admin
        def initialize(client)
          @client = client
        end

        # @return [Array<Hash{String=>Object}>] name, partitions (number, start, end), replication, settings; by name
        def topics = ask("topics").sort_by { |topic| topic["name"] }

        def topic(name) = ask("topic", name: name)

        # @raise [UnknownTopic] with the nearest name there is
        def topic!(name)
          topic(name) || begin
            nearest = Config::Nearest.to(name, topics.map { |topic| topic["name"] })
            raise UnknownTopic, "#{@client.address} has no topic #{name.inspect}" \
                                "#{nearest ? "; did you mean #{nearest}?" : " (`chaton streams topics` lists them)"}"
          end
        end

        # @param partitions [Integer, nil] nil: the log's default
        def create(name, partitions: nil, replication: nil, settings: {})
          ask("create", name: name, partitions: partitions, replication: replication, settings: settings)
        end

        # @param partitions [Integer] how many in all
        def grow(name, partitions) = ask("grow", name: name, partitions: partitions)

        def configure(name, settings) = ask("configure", name: name, settings: settings)

        # @return [Array<Hash{String=>Object}>] name, state, members (id, host, partitions); by name
        def groups = ask("groups").sort_by { |group| group["name"] }

        # @return [Array<Hash{String=>Object}>] topic, partition, offset, metadata
        def committed(group) = ask("committed", group: group)

        # @param commits [Array<Hash{Symbol=>Object}>] topic, partition, offset, metadata
        def set_committed(group, commits) = ask("set_committed", group: group, commits: commits)

        private

        def ask(what, **rest) = JSON.parse(@client.admin(JSON.generate({ do: what, **rest })))
      end

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
