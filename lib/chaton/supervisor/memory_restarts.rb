# frozen_string_literal: true

require_relative "recycling"

module Chaton
  class Supervisor
    # How often in a row a server without workers has restarted itself because of its memory in vain: it was above its
    # ceiling again before it was old enough. Each run of the process passes it to the next one.
    class MemoryRestarts
      # "PID COUNT": valid only in the process with this pid, which an exec keeps.
      VARIABLE = "CHATON_MEMORY_RESTARTS"

      attr_reader :failures

      # Takes the variable out of the environment.
      #
      # @param pid [Integer] a process that inherited the variable by mistake has another one
      def self.from_env(env = ENV, pid: Process.pid)
        owner, failures = env.delete(VARIABLE).to_s.split.map(&:to_i)
        new(owner == pid ? failures.to_i : 0)
      end

      def initialize(failures = 0)
        @failures = failures
      end

      # @return [Float] age in seconds at which it may restart itself again
      def age_s = RecyclingBackoff.doubled(RecyclingBackoff::AGES_S, @failures)

      # @param early [Boolean] whether it was above its ceiling before that age
      # @return [MemoryRestarts] for the next run
      def next(early:) = MemoryRestarts.new(early ? @failures + 1 : 0)

      # @return [Hash{String=>String}] environment of the next run
      def to_env(pid = Process.pid) = { VARIABLE => "#{pid} #{@failures}" }
    end
  end
end
