# frozen_string_literal: true

require_relative "../native"

module Chaton
  class Supervisor
    # Memory in which workers note the jobs they start; it outlives them. Made before the first fork.
    module Ledger
      # Started jobs of one worker that can be noted: more than threads run them in any configuration that makes
      # sense, since new code may come with a new number of threads.
      THREADS = 1024

      # @param plan [Chaton::Config::Plan]
      # @param slots [Integer] as on the board
      # @return [Native::InFlightTable, nil] nil where no jobs are run
      def self.make(plan, slots) = plan.role?(:jobs) ? Native::InFlightTable.new(slots, THREADS) : nil

      # @param descriptor [Integer] inherited from the supervisor
      # @return [Native::InFlightTable]
      def self.open(descriptor) = Native::InFlightTable.open(descriptor, THREADS)
    end
  end
end
