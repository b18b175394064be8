# frozen_string_literal: true

require_relative "../native"

module Chaton
  class Supervisor
    # Memory that the supervisor shares with its workers, made before the first fork: the scoreboard with each worker's
    # gauges, and the tables of the jobs and of the batches that each worker has started, which outlive the worker (nil
    # where no jobs or no streams run).
    class SharedMemory
      # Started jobs or batches of one worker that can be recorded. No sensible configuration has more threads; the
      # number is fixed because code loaded by a phased restart may come with another number of threads.
      THREADS = 1024

      # @param slots [Integer] workers that may exist at once
      # @return [SharedMemory]
      def self.create(plan, slots)
        table = ->(role, rows) { Native::InFlightTable.new(rows, THREADS) if plan.role?(role) }
        # The last row of the table of batches is for the deaths; see {BatchDeaths}.
        new(Native::Scoreboard.new(slots), table.call(:jobs, slots), table.call(:streams, slots + 1))
      end

      # Maps the memory of the supervisor in another process. The mappings outlive their descriptors, which workers and
      # the programs they start must not inherit.
      #
      # @param scoreboard [Integer] descriptor
      # @param in_flight_table [Integer, nil] descriptor
      # @param batch_table [Integer, nil] descriptor
      # @return [SharedMemory]
      def self.open(scoreboard:, in_flight_table: nil, batch_table: nil)
        tables = [in_flight_table, batch_table].map { |fd| fd && Native::InFlightTable.open(fd, THREADS) }
        memory = new(Native::Scoreboard.open(scoreboard), *tables)
        [scoreboard, in_flight_table, batch_table].compact.each { |descriptor| IO.for_fd(descriptor).close }
        memory
      end

      # @return [Native::Scoreboard]
      attr_reader :scoreboard
      # @return [Native::InFlightTable, nil] of jobs
      attr_reader :in_flight_table
      # @return [Native::InFlightTable, nil] of batches
      attr_reader :batch_table

      def initialize(scoreboard, in_flight_table, batch_table)
        @scoreboard = scoreboard
        @in_flight_table = in_flight_table
        @batch_table = batch_table
      end

      # @return [Hash{Symbol=>Integer}] as {.open} takes them
      def descriptors
        { scoreboard: @scoreboard, in_flight_table: @in_flight_table, batch_table: @batch_table }
          .compact.transform_values(&:fileno)
      end
    end
  end
end
