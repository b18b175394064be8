# frozen_string_literal: true

require_relative "rest"

module Chaton
  class Supervisor
    # How often in a row a server without workers has started again in place because of its memory although that did
    # not help: above its ceiling again before it was old enough. Handed from each life of the process to the next.
    class OwnRestarts
      # For this process and its next life only: its pid and how often, with a space between.
      VARIABLE = "CHATON_MEMORY_RESTARTS"

      # @return [Integer]
      attr_reader :vain

      # Takes the variable out of the environment.
      #
      # @param env [ENV, Hash{String=>String}]
      # @param pid [Integer] a process that was given the variable by mistake has another one
      # @return [OwnRestarts]
      def self.arrive(env = ENV, pid: Process.pid)
        of, vain = env.delete(VARIABLE).to_s.split.map(&:to_i)
        new(of == pid ? vain.to_i : 0)
      end

      # @param vain [Integer]
      def initialize(vain = 0)
        @vain = vain
      end

      # @return [Float] seconds that it must have run before it may start again
      def age_s = Rest.doubled(Rest::AGES_S, @vain)

      # @param early [Boolean] whether it was above its ceiling before that
      # @return [OwnRestarts] for the next life
      def next(early:) = OwnRestarts.new(early ? @vain + 1 : 0)

      # @param pid [Integer]
      # @return [Hash{String=>String}] environment of the next life
      def to_env(pid = Process.pid) = { VARIABLE => "#{pid} #{@vain}" }
    end
  end
end
