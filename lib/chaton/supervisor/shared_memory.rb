# frozen_string_literal: true

require_relative "../native"

module Chaton
  class Supervisor
    # Memory that the supervisor shares with its workers, made before the first fork: the scoreboard with each worker's
    # gauges, the tables of the jobs and of the batches that each worker has started, which outlive the worker, and the
    # batches that ran when workers died (nil where no jobs or no streams run).
    class SharedMemory
      # Started jobs or batches of one worker that can be recorded. No sensible configuration has more threads; the
      # number is fixed because code loaded by a phased restart may come with another number of threads.
      THREADS = 1024

      # @param slots [Integer] workers that may exist at once
      def self.create(plan, slots)
        jobs, batches = %i[jobs streams].map { |role| Native::InFlightTable.new(slots, THREADS) if plan.role?(role) }
        new(Native::Scoreboard.new(slots), jobs, batches, (Native::DeathTable.new if batches))
      end

      # Maps the memory of the supervisor in another process. The mappings outlive their descriptors, which workers and
      # the programs they start must not inherit.
      #
      # @param scoreboard [Integer] descriptor
      # @param in_flight_table [Integer, nil] descriptor
      # @param batch_table [Integer, nil] descriptor
      # @param death_table [Integer, nil] descriptor
      def self.open(scoreboard:, in_flight_table: nil, batch_table: nil, death_table: nil)
        tables = [in_flight_table, batch_table].map { |fd| fd && Native::InFlightTable.open(fd, THREADS) }
        memory = new(Native::Scoreboard.open(scoreboard), *tables, death_table && Native::DeathTable.open(death_table))
        [scoreboard, in_flight_table, batch_table, death_table].compact.each { |fd| IO.for_fd(fd).close }
        memory
      end

      attr_reader :scoreboard
      # @return [Native::InFlightTable, nil] of jobs
      attr_reader :in_flight_table
      # @return [Native::InFlightTable, nil] of batches
      attr_reader :batch_table, :death_table

      def initialize(scoreboard, in_flight_table, batch_table, death_table)
        @scoreboard = scoreboard
        @in_flight_table = in_flight_table
        @batch_table = batch_table
        @death_table = death_table
      end

      # @return [Hash{Symbol=>Integer}] as {.open} takes them
      def descriptors
        { scoreboard: @scoreboard, in_flight_table: @in_flight_table, batch_table: @batch_table,
          death_table: @death_table }.compact.transform_values(&:fileno)
      end
    end
  end
end
