# frozen_string_literal: true

require_relative "../native"

module Chaton
  class Supervisor
    # Memory that the supervisor shares with its workers, made before the first fork: the scoreboard with each worker's
    # gauges, and the table of the jobs that each worker has started, which outlives the worker (nil where no jobs run).
    class SharedMemory
      # Started jobs of one worker that can be recorded. No sensible configuration has more threads; the number is
      # fixed because code loaded by a phased restart may come with another number of threads.
      THREADS = 1024

      # @param slots [Integer] workers that may exist at once
      # @return [SharedMemory]
      def self.create(plan, slots)
        new(Native::Scoreboard.new(slots), plan.role?(:jobs) ? Native::InFlightTable.new(slots, THREADS) : nil)
      end

      # Maps the memory of the supervisor in another process. The mappings outlive their descriptors, which workers and
      # the programs they start must not inherit.
      #
      # @param scoreboard [Integer] descriptor
      # @param in_flight_table [Integer, nil] descriptor
      # @return [SharedMemory]
      def self.open(scoreboard:, in_flight_table: nil)
        memory = new(Native::Scoreboard.open(scoreboard),
                     in_flight_table && Native::InFlightTable.open(in_flight_table, THREADS))
        [scoreboard, in_flight_table].compact.each { |descriptor| IO.for_fd(descriptor).close }
        memory
      end

      # @return [Native::Scoreboard]
      attr_reader :scoreboard
      # @return [Native::InFlightTable, nil]
      attr_reader :in_flight_table

      def initialize(scoreboard, in_flight_table)
        @scoreboard = scoreboard
        @in_flight_table = in_flight_table
      end

      # @return [Hash{Symbol=>Integer}] as {.open} takes them
      def descriptors
        { scoreboard: @scoreboard, in_flight_table: @in_flight_table }.compact.transform_values(&:fileno)
      end
    end
  end
end
