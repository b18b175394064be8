# frozen_string_literal: true

require_relative "machine"

module Bench
  # Runs one case. Its servers take turns, and another one begins each round, so that other load on the machine affects
  # all of them alike. Subclasses define `measure(server)`, `facts`, and where they need it `open` and `close`.
  class CaseRun
    # @param a_case [Case]
    # @param progress [#call] called with case, figures and round after every slice
    def initialize(a_case, progress)
      @case = a_case
      @progress = progress
    end

    # @return [Hash{Symbol => Object}] the raw results
    def run
      load_before = Machine.load_average
      open
      slices = Array.new(@case.rounds) { |round| @case.servers.rotate(round).map { |server| slice(server, round) } }
      { case: @case.name, title: @case.title, kind: @case.kind, **facts,
        machine_load: [load_before, Machine.load_average], slices: slices.flatten }
    ensure
      close
    end

    private

    def open = nil
    def close = nil

    # A failed slice does not end the run: the other servers are still measured, and the row falls short.
    def slice(server, round)
      { server: server.label, round:, **measure(server) }.tap { |figures| @progress.call(@case, figures, round) }
    rescue RuntimeError, SystemCallError => e
      { server: server.label, round:, error: e.message }.tap { |figures| @progress.call(@case, figures, round) }
    end
  end
end
