# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
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
