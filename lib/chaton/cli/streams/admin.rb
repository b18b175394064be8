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

        # @return [Hash{String=>Object}, nil]
        def topic(name) = ask("topic", name: name)

        # @return [Hash{String=>Object}]
        # @raise [UnknownTopic] with the nearest name there is
        def topic!(name)
          topic(name) || begin
            nearest = Config::Nearest.to(name, topics.map { |topic| topic["name"] })
            raise UnknownTopic, "#{@client.address} has no topic #{name.inspect}" \
                                "#{nearest ? "; did you mean #{nearest}?" : " (`chaton streams topics` lists them)"}"
          end
        end

        # @param partitions [Integer, nil] nil: the log's default
        # @param settings [Hash{String=>String}]
        def create(name, partitions: nil, replication: nil, settings: {})
          ask("create", name: name, partitions: partitions, replication: replication, settings: settings)
        end

        # @param partitions [Integer] how many in all
        def grow(name, partitions) = ask("grow", name: name, partitions: partitions)

        # @param settings [Hash{String=>String}]
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
    end
  end
end
