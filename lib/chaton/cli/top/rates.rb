# frozen_string_literal: true

module Chaton
  class CLI
    class Top < ServerCommand
      # What happened a second between two samples, and some minutes of that for the curves.
      class Rates
        # Samples that are kept for each curve.
        KEPT = 120

        def initialize
          @history = Hash.new { |all, name| all[name] = [] }
          @by_pid = {}
        end

        def add(sample)
          before, @last = @last, sample
          return unless before && (elapsed_s = sample.at_s - before.at_s).positive?

          former = before.counts
          sample.counts.each do |name, count|
            # The totals of a replaced worker begin at 0.
            @history[name] = [*@history[name], [(count - former[name]) / elapsed_s, 0].max].last(KEPT)
          end
          @by_pid = by_pid(before, sample, elapsed_s)
        end

        # @param name [String] requests, jobs or records
        # @return [Array<Float>] the newest at the end
        def of(name) = @history.fetch(name, [])

        # @return [Float, nil] units of work that this process ended a second
        def of_pid(pid) = @by_pid[pid]

        private

        def by_pid(before, sample, elapsed_s)
          done = before.rows.to_h { |row| [row.pid, row.counts["done"]] }
          sample.rows.filter_map do |row|
            [row.pid, (row.counts["done"] - done[row.pid]) / elapsed_s] if done[row.pid]
          end.to_h
        end
      end
    end
  end
end
