# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # A subcommand that empties a place, which cannot be undone.
      class Clearing < Command
        def self.switches = [*super, "--yes"]

        private

        # Page by page, so that a long one can be watched and others get their turn.
        #
        # @return [Integer] exit status
        def empty(place)
          total = size(place)
          confirm("#{total} jobs of #{place} will be deleted for good.") if total.positive?
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

      # chaton jobs cancel JID
      class Cancel < Command
        def run
          jid, = positional("JID")
          client.cancel(jid)
          answer({ jid: jid }, "job #{jid} is asked to end; it ends when it checks cancelled?")
        end
      end

      # chaton jobs delete JID | --all PLACE
      class Delete < Clearing
        def self.switches = [*super, "--all"]

        def run
          return empty(place(positional("PLACE").first)) if @arguments.switch?("--all")

          record = found(positional("JID").first)
          acted(record, record.delete, "is deleted from #{record.place}")
        end
      end

      # chaton jobs kill JID
      class Kill < Command
        def run
          record = found(positional("JID").first)
          acted(record, record.kill, "is in the dead set now")
        end
      end

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
