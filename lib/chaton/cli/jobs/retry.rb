# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs retry JID | --all [PLACE]
      class Retry < Command
        def self.switches = [*super, "--all"]

        def run
          return all(positional(more: 1).first || "retry") if @arguments.switch?("--all")

          record = found(positional("JID").first)
          acted(record, record.retry, "went back to its queue #{record.queue}")
        end

        private

        # As many as there are now, so that jobs that fail again in the meantime are not sent back twice.
        def all(name)
          place = place(name)
          raise ConfigError, "jobs of a queue cannot be retried; they wait to be run" if place.start_with?("queue:")

          total = size(place)
          count = Progress.on(@err, "retry", total) { |progress| requeue(place, total, progress) }
          answer({ place: place, count: count }, "#{count} jobs of #{place} went back to their queues")
        end

        def requeue(place, total, progress)
          count = seen = gone = 0
          while seen < total
            # Entries that another process has taken are skipped.
            entries = client.list(place, gone, [PAGE, total - seen].min)
            return count if entries.empty?

            entries.each { |entry| client.requeue(place, entry) ? count += 1 : gone += 1 }
            progress.at(seen += entries.size)
          end
          count
        end
      end
    end
  end
end
