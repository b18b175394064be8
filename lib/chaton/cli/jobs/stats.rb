# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs stats
      class Stats < Command
        def run
          positional
          stats = client.stats
          rows = stats.map { |name, value| "#{name.to_s.ljust(10)}  #{Table.cell(value).rjust(12)}" }
          answer({ store: client.address, **stats }, ["store       #{client.address}", *rows].join("\n"))
        end
      end
    end
  end
end
