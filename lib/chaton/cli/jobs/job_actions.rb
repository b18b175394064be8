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

      # chaton jobs list [PLACE]
      class List < Command
        # Characters of arguments and error in one line.
        TEXT_MAX = 60

        def self.own_options = %i[queue limit offset]

        def run
          name, = positional(more: 1)
          count, offset = value(:limit), value(:offset)
          records = places(name).flat_map do |place|
            client.list(place, offset, count).map { |entry| record(place, entry) }
          end
          answer(records.map { |one| data(one) }, text(records))
        end

        private

        def places(name)
          queue = value(:queue)
          raise ConfigError, "name a place or --queue, not both" if queue && name
          return [queue ? "queue:#{queue}" : place(name)] if queue || name

          [*client.queues.map { |one| "queue:#{one[:name]}" }, *SETS]
        end

        def data(record)
          { place: record.place, jid: record.jid, class: record.job_class, args: record.args, queue: record.queue,
            at: record.at&.to_f, error: record["error_message"] }
        end

        def text(records)
          return "no jobs wait there" if records.empty?

          rows = records.map do |one|
            [one.place, one.jid || "(no job document)", one.job_class, short(one.args.to_json[1..-2]), one.at,
             short(one["error_message"])]
          end
          Table.text(%w[place jid class arguments at error], rows)
        end

        def short(text) = text.nil? || text.length <= TEXT_MAX ? text : "#{text[0, TEXT_MAX - 1]}…"
      end

      # chaton jobs show JID
      class Show < Command
        # Fields that are times.
        TIMES = %w[created_at enqueued_at failed_at retried_at].freeze

        def run
          jid, = positional("JID")
          record = found(jid)
          answer({ place: record.place, at: record.at&.to_f, job: record.item }, text(record))
        end

        private

        def text(record)
          rows = { "place" => record.place, "at" => record.at }.compact
          record.item.except("error_backtrace").each { |name, value| rows[name] = shown(name, value) }
          width = rows.keys.map(&:length).max
          lines = rows.map { |name, value| "#{name.ljust(width)}  #{Table.cell(value)}" }
          [*lines, *backtrace(record)].join("\n")
        end

        def shown(name, value)
          return value if value.is_a?(String)
          return value.to_json unless TIMES.include?(name) && value.is_a?(Numeric)

          # Sidekiq 8 writes milliseconds, as whole numbers.
          Time.at(value.is_a?(Integer) ? value / 1000.0 : value)
        end

        def backtrace(record)
          lines = record.error_backtrace
          lines.nil? || lines.empty? ? [] : ["backtrace", *lines.map { |line| "  #{line}" }]
        end
      end
    end
  end
end
