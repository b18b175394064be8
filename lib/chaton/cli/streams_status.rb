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

        streams = Config.load({ environment: status["environment"], **given }.compact).streams
        streams ? { **status, "streams" => of(streams, Array(status["topics"])) } : status
      rescue Config::Invalid => e
        { **status, "streams" => { "error" => e.message } }
      end

      def self.consumes?(status)
        [*status["workers"], status["workload"]].compact.any? { |one| Array(one["roles"]).include?("streams") }
      end

      # @param own [Array<Hash{String=>Object}>] the topics that the server reads, as its scoreboard has them
      def self.of(streams, own)
        require_relative "../native"
        require_relative "streams/admin"
        require_relative "streams/group_lag"
        client = Native::StreamsClient.new(streams.log_document)
        { "broker" => client.address, "groups" => groups(Streams::Admin.new(client), streams, own) }
      rescue Chaton::Error, ArgumentError => e
        { "broker" => streams.broker, "error" => e.message }
      end

      def self.groups(admin, streams, read)
        names = streams.routes.map(&:group).uniq
        topics = streams.routes.map(&:topic).uniq.filter_map { |name| admin.topic(name) }
        rows = Streams::GroupLag.new(topics, names.to_h { |name| [name, admin.committed(name)] }, streams).rows
        names.map do |name|
          own = rows.select { |row| row.group == name }
          declared = streams.routes.select { |route| route.group == name }.map(&:topic).uniq
          group(name, own, declared).merge("paused" => read.sum { |one| one["group"] == name ? one["paused"] : 0 })
        end
      end

      def self.group(name, rows, declared)
        there = rows.map(&:topic).uniq
        { "name" => name, "topics" => there, "missing_topics" => declared - there, "partitions" => rows.size,
          "committed" => rows.sum { |row| row.committed.to_i }, "lag" => rows.sum(&:lag), "stopped" => stopped(rows) }
      end

      # The partitions that have stopped at lost records, with the first and the last of these.
      def self.stopped(rows)
        rows.select(&:stopped).map do |row|
          { "topic" => row.topic, "partition" => row.partition, "from" => row.stopped.first, "to" => row.stopped.last }
        end
      end
      private_class_method :consumes?, :of, :groups, :group, :stopped
    end
  end
end
