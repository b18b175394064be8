# frozen_string_literal: true

require "json"

module Chaton
  module IterableJob
    # The progress of an iteration, stored under Sidekiq's key with Sidekiq's fields.
    class IterationProgress
      # Least time between two writes.
      INTERVAL_S = 5.0
      # It is removed after this time: 30 days.
      TTL_S = 30 * 86_400.0

      # @param jid [String, nil] nil without a worker: nothing is stored
      def self.open(jid)
        native = jid && Jobs.client.native
        new(native, "it-#{jid}", native ? native.load("it-#{jid}") : {})
      end

      # Cancels a job, whatever process runs it.
      #
      # @return [Integer] the time, in seconds
      def self.cancel(jid)
        now = Time.now.to_i
        Jobs.client.native.save("it-#{jid}", { "cancelled" => now.to_s }, TTL_S)
        now
      end

      attr_reader :cursor

      def initialize(native, key, state)
        @native = native
        @key = key
        @runs = state["ex"].to_i + 1
        @cursor = state["c"] && JSON.parse(state["c"], max_nesting: false)
        @runtime_s = state["rt"].to_f
        @cancelled = state.key?("cancelled")
        @began_s = @saved_s = now_s
      end

      # @return [Boolean] whether the job never ran before
      def first_run? = @runs == 1

      def cancelled? = @cancelled

      # Called before each item. Writes the cursor now and then.
      #
      # @return [Boolean] whether the job was cancelled in the store
      def tick(cursor)
        now = now_s
        return false if now - @saved_s < INTERVAL_S

        save(cursor)
        @native ? @native.load(@key).key?("cancelled") : false
      end

      # Stores where the iteration is.
      # @param cursor [Object] that JSON can hold
      def save(cursor)
        @saved_s = now_s
        @native&.save(@key, { "ex" => @runs.to_s, "c" => JSON.generate(cursor, max_nesting: false),
                              "rt" => (@runtime_s + @saved_s - @began_s).round(3).to_s }, TTL_S)
      end

      def forget
        @native&.remove_hash(@key)
      end

      private

      def now_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
