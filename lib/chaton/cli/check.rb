# frozen_string_literal: true

require "json"
require_relative "../rails/active_record_pool"
require_relative "../memory/launch"
require_relative "../ruby_release"
require_relative "command"
require_relative "plan_report"

module Chaton
  class CLI
    # chaton check: would `chaton serve` start?
    class Check < Command
      def self.switches = ["--json", "--all"]

      def run
        plan = load_plan
        plan = with_notes(plan, [*plan.warnings, *RubyRelease.warnings])
        require_rackup(plan)
        enter(plan)
        plan = with_certificates(with_sidekiq_file(plan))
        # Like the server, before the application is loaded.
        launch_settings = Memory::LaunchSettings.of(plan, env: ENV.to_h)
        load_code(plan)
        show(with_store(with_database(with_cable(plan))), launch_settings)
        0
      end

      # @return [Config::Plan] with the same directory and environment, and nothing else set
      def self.defaults(plan)
        given = { config_file: Config::Loader::NO_FILE, environment: plan.environment, sidekiq_file: false,
                  **(plan.jobs ? { web: true, jobs: true } : {}) }
        Config.load(given, env: {}, root: plan.root)
      end

      private

      def show(plan, launch_settings)
        defaults = Check.defaults(plan) unless @arguments.switch?("--all")
        reports = [PlanReport.new(plan, defaults: defaults), MemoryReport.new(plan, launch_settings)]
        return @out.puts(*reports, "", "the configuration is valid") unless @arguments.switch?("--json")

        refusal = Memory::Launch.refusal(plan)
        @out.puts JSON.pretty_generate({ **plan.to_h, launch: { refusal: refusal, **launch_settings.to_h } })
      end

      # @param notes [Array<String>] further ones
      def with_notes(plan, notes) = plan.with(notes: [*plan.notes, *notes].freeze)

      # Without the role it has no effect, and nothing else would say so.
      def with_sidekiq_file(plan)
        file = Config::Options[:sidekiq_file].default
        return plan if plan.jobs || !File.file?(file)

        with_notes(plan, ["#{file} is not read, because no jobs run here; it is with --jobs, or with a `jobs { }` in " \
                          "the configuration"])
      end

      # Those for development are made by the server.
      def with_certificates(plan)
        encrypted = plan.binds.filter_map(&:tls).reject(&:for_development?).uniq
        return plan if encrypted.empty?

        require_relative "../web/certificates"
        encrypted.each { |tls| Web::Certificates.keep(tls) }
        warnings = encrypted.flat_map { |tls| Web::Certificates.warnings(tls) }
        with_notes(plan, warnings)
      end

      def load_code(plan)
        require_relative "../workload/code"
        require_relative "../telemetry/log"
        # With `forks`, records that the application produces are kept and not written.
        Workload::Code.load(plan, plan.roles, log: Telemetry::Log.new(level: :warn, io: @err), forks: true)
      end

      # The server starts without its store, too.
      def with_store(plan)
        return plan if plan.jobs.nil? || plan.jobs.store_file

        client = ::Chaton::Jobs.client
        client.native.queues
        with_notes(plan, [*client.native.advice, *client.elsewhere])
      rescue StoreUnavailable => e
        note = "the job store cannot be reached now, and a server that starts would wait for it: #{e.message}"
        with_notes(plan, [note])
      end

      # Rails writes this adapter into the config/cable.yml of a new application. Each process has its own.
      def with_cable(plan)
        return plan unless plan.workers > 1 && cable_adapter == "async"

        note = "config/cable.yml has the adapter async, with which a broadcast reaches only the clients of its own " \
               "process, and there are #{plan.workers} workers: use redis, solid_cable or postgresql"
        with_notes(plan, [note])
      end

      def cable_adapter
        (::ActionCable.server.config.cable || {})["adapter"] if defined?(::ActionCable.server)
      end

      # The server limits its threads to the database pool once the application is loaded.
      def with_database(plan)
        max, message, = ActiveRecordPool.threads_max(plan, ActiveRecordPool.size)
        message ? with_notes(plan.with(threads_max: max), [message]) : plan
      end
    end
  end
end
