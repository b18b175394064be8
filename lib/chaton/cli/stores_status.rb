# frozen_string_literal: true

require "json"
require_relative "../config"

module Chaton
  class CLI
    # Adds figures of the job store and the progress of each consumer group to `chaton status`. They are read from the
    # store and from the log, because the main process has no connection to them.
    module StoresStatus
      # @param status [Hash{String=>Object}] a server's answer
      # @param given [Hash{Symbol=>Object}] of the command line
      # @return [Hash{String=>Object}] the answer, with "jobs" and "streams" where the server runs some
      def self.add(status, given)
        roles = [*status["workers"], status["workload"]].compact.flat_map { |one| Array(one["roles"]) }
        given = { environment: status["environment"], **given }.compact
        status = add_jobs(status, given) if roles.include?("jobs")
        roles.include?("streams") ? add_streams(status, given) : status
      end

      def self.add_jobs(status, given)
        # The server may run jobs only because of its command line.
        jobs = Config.load(given).jobs || Config.load({ **given, jobs: true }).jobs
        { **status, "jobs" => jobs(settings(jobs, status["store"])) }
      rescue Config::Invalid => e
        { **status, "jobs" => { "store" => status["store"], "error" => e.message } }
      end

      def self.add_streams(status, given)
        streams = Config.load(given).streams
        streams ? { **status, "streams" => streams(streams, Array(status["topics"])) } : status
      rescue Config::Invalid => e
        { **status, "streams" => { "error" => e.message } }
      end

      # The server may have been started with another address. It does not tell a password.
      def self.settings(jobs, shown)
        shown.nil? || shown.include?("***") ? jobs.store_settings : { **jobs.store_settings, url: shown }
      end

      def self.jobs(settings)
        require_relative "../native"
        client = Native::JobsClient.new(JSON.generate(settings))
        { "store" => client.address, "stats" => client.stats.transform_keys(&:to_s),
          "queues" => client.queues.map { |queue| queue.transform_keys(&:to_s) },
          "outbox" => client.outbox&.transform_keys(&:to_s) }.compact
      rescue Chaton::Error, ArgumentError => e
        { "store" => Config::StoreAddress.shown(settings[:url]), "error" => e.message }
      end

      # @param own [Array<Hash{String=>Object}>] the topics that the server reads, as its scoreboard has them
      def self.streams(streams, own)
        require_relative "../native"
        require_relative "streams/admin"
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
      private_class_method :add_jobs, :add_streams, :settings, :jobs, :streams, :groups, :group, :stopped
    end
  end
end
