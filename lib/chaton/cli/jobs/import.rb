# frozen_string_literal: true

require_relative "../../jobs/import"
require_relative "../../jobs/job_files"
require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs import: the application is loaded, whose classes say which limits and locks the jobs have.
      class Import < Command
        def self.own_options = %i[from database]

        def run
          positional
          from = value(:from) or raise ConfigError, "--from is missing: write --from solid_queue or --from good_job"
          ::Chaton::Jobs::JobFiles.new(plan, nil).load
          import = ::Chaton::Jobs::Import.new(from, database: value(:database))
          Progress.on(@err, "import", import.size) do |progress|
            import.run { |taken| progress.at(taken.values.sum) }
          end
          report(import.taken, import.left, import.pause, import.recurring)
        end

        private

        def creates_store? = true

        def report(taken, left, paused, recurring)
          counts = taken.empty? ? "none" : taken.map { |kind, count| "#{count} #{kind}" }.join(", ")
          lines = ["jobs taken over: #{counts}"]
          lines.concat(left.map { |reason, count| "left where they are: #{count} (#{reason})" })
          lines << "paused, as they were: #{paused.join(", ")}" if paused.any?
          lines << "write these into jobs { } of config/chaton.rb:" if recurring.any?
          lines.concat(recurring.map { |line| "  #{line}" })
          answer({ taken: taken, left: left, paused: paused, recurring: recurring }, lines.join("\n"))
        end
      end
    end
  end
end
