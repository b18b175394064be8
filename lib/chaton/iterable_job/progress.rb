# frozen_string_literal: true

require "json"

module Chaton
  module IterableJob
    # How far an iteration has come, kept in the store under the key and with the fields of Sidekiq's.
    class Progress
      # Time between two writes.
      INTERVAL_S = 5.0
      # It is forgotten after this time: 30 days.
      TTL_S = 30 * 86_400.0

      # @param jid [String, nil] nil: no worker runs it, and nothing is kept
      # @return [Progress]
      def self.open(jid)
        native = jid && Jobs.client.native
        new(native, "it-#{jid}", native ? native.load("it-#{jid}") : {})
      end

      # @return [Object, nil]
      attr_reader :cursor

      # @param native [Native::JobsClient, nil]
      # @param key [String]
      # @param state [Hash{String=>String}]
      def initialize(native, key, state)
        @native = native
        @key = key
        @runs = state["ex"].to_i + 1
        @cursor = state["c"] && JSON.parse(state["c"], max_nesting: false)
        @runtime_s = state["rt"].to_f
        @cancelled = state.key?("cancelled")
        @began_s = @saved_s = now_s
      end

      # @return [Boolean] whether nothing of the job ran before
      def first_run? = @runs == 1

      # @return [Boolean]
      def cancelled? = @cancelled

      # Called before each item; writes now and then.
      #
      # @param cursor [Object]
      # @return [Boolean] whether somebody cancelled the job by way of the store
      def tick(cursor)
        now = now_s
        return false if now - @saved_s < INTERVAL_S

        save(cursor)
        @native ? @native.load(@key).key?("cancelled") : false
      end

      # @param cursor [Object]
      # @return [void]
      def save(cursor)
        @saved_s = now_s
        @native&.save(@key, { "ex" => @runs.to_s, "c" => JSON.generate(cursor, max_nesting: false),
                              "rt" => (@runtime_s + @saved_s - @began_s).round(3).to_s }, TTL_S)
      end

      # @return [void]
      def cancel
        @native&.save(@key, { "cancelled" => Time.now.to_i.to_s }, TTL_S)
      end

      # @return [void]
      def forget
        @native&.remove_hash(@key)
      end

      private

      def now_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
