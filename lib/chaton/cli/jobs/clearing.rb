# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # A subcommand that empties a place.
      class Clearing < Command
        private

        # Page by page, so that a long one can be watched and others get their turn.
        #
        # @return [Integer] exit status
        def empty(place)
          total = size(place)
          count = Progress.on(@err, "delete", total) { |progress| clear(place, total, progress) }
          answer({ place: place, count: count }, "#{count} jobs of #{place} are deleted")
        end

        def clear(place, total, progress)
          count = 0
          while count < total && (done = client.clear(place, [PAGE, total - count].min)).positive?
            progress.at(count += done)
          end
          count
        end
      end
    end
  end
end
