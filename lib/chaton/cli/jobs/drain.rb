# frozen_string_literal: true

require_relative "clearing"

module Chaton
  class CLI
    module Jobs
      # chaton jobs drain QUEUE
      class Drain < Clearing
        def self.switches = [*super, "--yes"]

        def run
          queue = positional("QUEUE").first.delete_prefix("queue:")
          place = "queue:#{queue}"
          count = size(place)
          confirm("#{count} jobs of the queue #{queue} will be deleted for good.") if count.positive?
          empty(place)
        end
      end
    end
  end
end
