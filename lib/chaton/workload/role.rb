# frozen_string_literal: true

module Chaton
  class Workload
    # The base of one role in one process: its engine, and the handler that runs the engine's work. A subclass defines
    # `handler`, `start`, `quiet_engine` and `give_up`.
    class Role
      # @return [Object] the engine, once started
      attr_reader :engine

      def initialize(plan, context:, log:)
        @plan = plan
        @context = context
        @log = log
      end

      # Takes work; called once, when the process is ready. Requests are taken earlier.
      def begin; end

      # Takes no more work; work that is running is finished.
      def quiet
        return if @quiet

        @quiet = true
        quiet_engine
      end

      # @return [Boolean] whether all work has ended: every connection, job or batch
      def wait(timeout_s) = @engine.wait_idle(timeout_s)

      def stop = @engine.stop

      # @return [Hash] the engine's statistics
      def stats = @engine.stats
    end

    # What a process is among its siblings: its roles (:web, :jobs, :streams), its number and where it reports.
    #
    # `scoreboard`, `in_flight_table` (jobs) and `batch_table` are shared memory, in which the process has the row
    # `slot`; `death_table` has the batches that ran when workers died. Without a supervisor nobody reads the tables,
    # and they are nil. `channel` is the socket to the supervisor, or nil.
    ProcessContext = Struct.new(:roles, :index, :scoreboard, :slot, :in_flight_table, :batch_table, :death_table,
                                :channel, keyword_init: true)
  end
end
