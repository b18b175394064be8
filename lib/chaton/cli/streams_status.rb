# frozen_string_literal: true

require_relative "../config"

module Chaton
  class CLI
    # Adds the progress of each consumer group to `chaton status`. It is read from the log, because the main process has
    # no connection to it.
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
        require_relative "streams/group_lag"
        client = Native::StreamsClient.new(streams.log_document)
        { "broker" => client.address, "groups" => groups(Streams::Admin.new(client), streams) }
      rescue Chaton::Error, ArgumentError => e
        { "broker" => streams.broker, "error" => e.message }
      end

      def self.groups(admin, streams)
        names = streams.routes.map(&:group).uniq
        topics = streams.routes.map(&:topic).uniq.filter_map { |name| admin.topic(name) }
        rows = Streams::GroupLag.new(topics, names.to_h { |name| [name, admin.committed(name)] }, streams).rows
        names.map do |name|
          own = rows.select { |row| row.group == name }
          there = own.map(&:topic).uniq
          missing = streams.routes.select { |route| route.group == name }.map(&:topic).uniq - there
          { "name" => name, "topics" => there, "missing_topics" => missing, "partitions" => own.size,
            "committed" => own.sum { |row| row.committed.to_i }, "lag" => own.sum(&:lag) }
        end
      end
      private_class_method :consumes?, :of, :groups
    end
  end
end
