# frozen_string_literal: true

require "json"
require_relative "../../jobs"
require_relative "../../native"
require_relative "../progress"
require_relative "../servers"
require_relative "../subcommand"
require_relative "../table"

module Chaton
  class CLI
    module Jobs
      # The base of subcommands: finds the store by the configuration.
      class Command < Subcommand
        # Options of subcommands.
        OWN = {
          queue: Config::Option.new(name: :queue, group: :jobs, type: Config::Types::Word.new("a queue"),
                                    flags: %w[-q --queue], placeholder: "NAME", default_text: "none",
                                    says: "Use this queue."),
          limit: Config::Option.new(name: :limit, group: :jobs, type: Config::Types::Number.new(1..10_000), default: 25,
                                    flags: %w[--limit], placeholder: "N", says: "Jobs of each place at most."),
          offset: Config::Option.new(name: :offset, group: :jobs, type: Config::Types::Number.new(0..100_000_000),
                                     default: 0, flags: %w[--offset], placeholder: "N",
                                     says: "Skip that many of each place."),
          from: Config::Option.new(name: :from, group: :jobs, type: Config::Types::OneOf.new(:solid_queue, :good_job),
                                   flags: %w[--from], placeholder: "NAME", default_text: "none",
                                   says: "The program whose tables have the jobs."),
          database: Config::Option.new(name: :database, group: :jobs, type: Config::Types::Word.new("a database"),
                                       flags: %w[--database], placeholder: "NAME",
                                       default_text: "the one that has its tables",
                                       says: "The entry of config/database.yml with these tables."),
          in: Config::Option.new(name: :in, group: :jobs, type: Config::Types::Number.new(0.0..3e9, unit: "seconds"),
                                 default: 0.0, flags: %w[--in], placeholder: "S", says: "Run it in so many seconds.")
        }.freeze
        # The sets of jobs beside the queues.
        SETS = %w[scheduled retry dead].freeze
        # Jobs read or removed in one call.
        PAGE = 500

        # The options that lead to the store.
        COMMON = %i[config_file environment store].map { |name| Config::Options[name] }.freeze

        private

        # Without `reliable_push`: what a command reports as enqueued is stored.
        def client
          @client ||= begin
            require_store
            Native::JobsClient.new(JSON.generate(plan.jobs.store_settings.merge(reliable_push: nil)))
          end
        rescue ArgumentError => e
          raise ConfigError, e.message
        end

        # @return [Boolean] whether it may make the store
        def creates_store? = false

        # A file that is missing is most often the file of another environment, or a mistyped path.
        def require_store
          file = plan.jobs.store_file
          return if file.nil? || File.exist?(file) || creates_store?

          others = Dir[File.join(File.dirname(file), "chaton*.db")].map { |path| File.basename(path) }
          raise ConfigError, "there is no job store at #{file} (environment #{plan.environment}); the first server " \
                             "or job makes it. -e NAME chooses the environment, --store the store" \
                             "#{"; there is #{others.join(", ")} beside it" unless others.empty?}"
        end

        def plan = @plan ||= load_jobs

        # A server that runs here says in which environment, and on which store. It may run jobs only because of its
        # command line.
        def load_jobs
          server = Servers.settings(given)
          options = { environment: server["environment"], **given }.compact
          plan = Config.load(options, problems: @arguments.problems)
          plan = Config.load({ **options, jobs: true }) unless plan.jobs
          plan = of_server(plan, server["store"], options)
          # In a task of Rails, the application has had its say.
          plan = ::Chaton::Jobs.settled(plan) unless given[:store]
          ::Chaton::Jobs.use(plan)
          plan
        end

        # @param shown [String, nil] the server's store, without a password
        def of_server(plan, shown, options)
          return plan if shown.nil? || shown == plan.jobs.store_shown
          return Config.load({ **options, jobs: true, store: shown }) unless shown.include?("***")

          raise ConfigError, "the server here works on #{shown}, and the configuration names " \
                             "#{plan.jobs.store_shown} to this command: set the variables of the server's " \
                             "environment, or name the store with --store"
        end

        def place(name)
          return name if SETS.include?(name) || name.match?(/\Aqueue:./)

          known = [*SETS, *client.queues.map { |queue| "queue:#{queue[:name]}" }]
          nearest = known.include?("queue:#{name}") ? "queue:#{name}" : Config::Nearest.to(name, known)
          raise ConfigError, "#{name.inspect} is not a place of jobs; there are #{SETS.join(", ")} and queue:NAME" \
                             "#{"; did you mean #{nearest}?" if nearest}"
        end

        # @return [Integer] how many jobs are there
        def size(place)
          return client.stats.fetch({ "scheduled" => :scheduled, "retry" => :retries, "dead" => :dead }[place]) \
            if SETS.include?(place)

          client.queues.find { |queue| "queue:#{queue[:name]}" == place }&.fetch(:size) || 0
        end

        def record(place, entry) = ::Chaton::Jobs::JobRecord.new(client, place, entry)

        # @return [::Chaton::Jobs::JobRecord] of the job with this number
        # @raise [Chaton::Error] when it waits nowhere
        def found(jid)
          place, entry = client.find(jid)
          return record(place, entry) if place

          process = client.processes.find { |one| one[:work].any? { |work| work[2].include?(jid) } }
          raise Chaton::Error, "job #{jid} does not wait; it runs in #{process[:identity]}" if process

          raise Chaton::Error,
                "there is no job #{jid}; it has ended, or never existed (`chaton jobs list` shows waiting jobs)"
        end

        # Prints what was done to one job.
        def acted(record, done, what)
          raise Chaton::Error, "job #{record.jid} is no longer in #{record.place}" unless done

          answer({ jid: record.jid, from: record.place }, "job #{record.jid} (#{record.job_class}) #{what}")
        end

        # Asks before a command that cannot be undone.
        #
        # @raise [Chaton::Error] when the answer is no, or there is no terminal
        def confirm(question)
          return if @arguments.switch?("--yes")
          raise Chaton::Error, "#{question} Confirm with --yes" unless $stdin.tty?

          @err.print "#{question} [y/N] "
          raise Chaton::Error, "nothing was done" unless $stdin.gets.to_s.match?(/\Ay(es)?\s*\z/i)
        end
      end
    end
  end
end
