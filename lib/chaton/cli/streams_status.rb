# frozen_string_literal: true

require_relative "../config"

module Chaton
  class CLI
    # What `chaton status` adds of the log that streams are read from: how far each group has come. The main process
    # has no connection to it, and is not asked.
    module StreamsStatus
      # @param status [Hash{String=>Object}] a server's answer
      # @param given [Hash{Symbol=>Object}] of the command line
      # @return [Hash{String=>Object}] the answer, with "streams" where the server consumes some
      def self.add(status, given)
        return status unless consumes?(status)

        streams = Config.load(given).streams
        streams ? { **status, "streams" => of(streams) } : status
      rescue Config::Invalid => e
        { **status, "streams" => { "error" => e.message } }
      end

      def self.consumes?(status)
        [*status["workers"], status["service"]].compact.any? { |one| Array(one["roles"]).include?("streams") }
      end

      def self.of(streams)
        require_relative "../native"
        require_relative "streams/admin"
        require_relative "streams/progress_of_groups"
        client = Native::StreamsClient.new(streams.log_json)
        { "broker" => client.address, "groups" => groups(Streams::Admin.new(client), streams) }
      rescue Chaton::Error, ArgumentError => e
        { "broker" => streams.broker, "error" => e.message }
      end

      def self.groups(admin, streams)
        names = streams.routes.map(&:group).uniq
        topics = streams.routes.map(&:topic).uniq.filter_map { |name| admin.topic(name) }
        rows = Streams::ProgressOfGroups.new(topics, names.to_h { |name| [name, admin.committed(name)] }, streams).rows
        names.map do |name|
          own = rows.select { |row| row.group == name }
          { "name" => name, "topics" => own.map(&:topic).uniq, "partitions" => own.size,
            "committed" => own.sum { |row| row.committed.to_i }, "lag" => own.sum(&:lag) }
        end
      end
      private_class_method :consumes?, :of, :groups
    end
  end
end
