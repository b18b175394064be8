# frozen_string_literal: true

require_relative "process_client"
require_relative "rails/after_commit"

module Chaton
  # Messages to open event streams: the log of this process, and the hub that feeds its connections.
  #
  # @see Live::Broadcasting#broadcast
  # @see EventStream
  # @private
  module Live
    autoload :Broadcasting, "chaton/live/broadcasting"
    autoload :Client, "chaton/live/client"

    # Time between two lines about the same trouble.
    NOTED_EVERY_S = 10
    private_constant :NOTED_EVERY_S

    extend ProcessClient

    class << self
      # Sets the plan of a process that has read its configuration.
      #
      # @param plan [Config::Plan]
      def use(plan)
        @lock.synchronize do
          @plan = plan
          @client = nil
        end
      end

      # Called when a worker serves requests. Where event streams have been used before, their clients come back without
      # Ruby from now on, elsewhere from the first stream on.
      #
      # @param plan [Config::Plan]
      # @param engine [Native::Web]
      # @param log [Telemetry::Log]
      def serve(plan, engine, log:)
        @engine = engine
        @log = log
        client if File.exist?(plan.live.file)
      end

      # Tells that streams cannot begin now, not for each of them.
      #
      # @param error [StoreError]
      # @param log [Telemetry::Log]
      def note_away(error, log)
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return if @noted_at && now - @noted_at < NOTED_EVERY_S

        @noted_at = now
        log.warn("event streams cannot begin now: #{error.message}")
      end

      # @return [Client, nil] that of this process, if event streams were used
      def client_in_use = @client

      # Ends the hub's thread, at the end of a worker.
      def finish
        @client&.stop
      end

      private

      def settled(plan) = plan

      def make_client
        Client.new(configured(:live, "live { }")).tap { |client| attach(client) if @engine }
      end

      def attach(client)
        client.attach(@engine)
      rescue StoreError => e
        # The next stream tries it again.
        @log.warn("event streams cannot be continued now: #{e.message}")
      end
    end
  end
end
