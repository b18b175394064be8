# frozen_string_literal: true

require_relative "cases"
require_relative "../support/bar"
require_relative "slice"
require_relative "../support/machine"

module Bench
  module Web
    # Measures an idle server: its memory after some load, and its wake-ups.
    class Idle
      # Time for the server to end threads that it no longer needs, and for the allocator to give back free memory.
      SETTLE_S = 45
      WATCH_S = 30
      # Wake-ups of all threads together: none in one process, a heartbeat each second with a supervisor.
      CASES = { "idle" => [0, 0.0], "idle-workers" => [2, 1.0 * WATCH_S] }.map do |name, (workers, most)|
        Case.new(name:, kind: self,
                 title: "idle after load: Sinatra example, each server's default threads, #{workers} workers",
                 rackup: SINATRA, path: "/", connections: 4, seconds: 2, rounds: 3,
                 servers: [Chaton.new(workers:), Puma.new(workers:)],
                 bars: [Bar.at_most(:pss_mb, 1.05), Bar.at_most(:idle_waits, most, against: nil)])
      end.freeze

      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @return [Hash{Symbol => Object}] the raw results
      def run
        load_before = Machine.load_average
        slices = Array.new(@case.rounds) { |round| measure(round) }.flatten
        { case: @case.name, title: @case.title, path: @case.path, connections: @case.connections,
          seconds: @case.seconds, settle_s: SETTLE_S, watch_s: WATCH_S,
          commands: @case.servers.to_h { |server| [server.label, server.command_line(@case.rackup)] },
          machine_load: [load_before, Machine.load_average], slices: }
      end

      private

      # Each round has fresh processes, because memory depends on what a process did before.
      def measure(round)
        @case.servers.each { |server| server.start(@case.rackup) }
        served = @case.servers.map { |server| Slice.new(@case, server).measure }
        sleep SETTLE_S
        before = @case.servers.map { |server| server.tree.read }
        sleep WATCH_S
        @case.servers.each_with_index.map do |server, index|
          waits = server.tree.read.waits_since(before[index])
          figures = served[index].merge(round:, idle_waits: waits, **server.tree.memory_mb)
          figures.tap { @progress.call(@case, figures, round) }
        end
      ensure
        @case.servers.each(&:stop)
      end
    end
  end
end
