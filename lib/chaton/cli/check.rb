# frozen_string_literal: true

require "json"
require_relative "../active_record_pool"
require_relative "../memory/launch"
require_relative "../ruby_release"
require_relative "command"
require_relative "memory_report"
require_relative "plan_report"

module Chaton
  class CLI
    # chaton check: would `chaton serve` start?
    class Check < Command
      def self.switches = ["--json", "--all"]

      def run
        plan = load_plan
        plan = plan.with(notes: [*plan.notes, *plan.warnings, *RubyRelease.warnings].freeze)
        require_rackup(plan)
        enter(plan)
        plan = with_certificates(plan)
        # Like the server, before the application is loaded.
        launch_settings = Memory::LaunchSettings.new(plan.memory, cache: Memory::HeapCache.of(plan), env: ENV.to_h)
        load_code(plan)
        show(with_store(with_database(plan)), launch_settings)
        0
      end

      # @param plan [Config::Plan]
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
        return @out.puts(*reports) unless @arguments.switch?("--json")

        refusal = Memory::Launch.refusal(plan)
        @out.puts JSON.pretty_generate({ **plan.to_h, launch: { refusal: refusal, **launch_settings.to_h } })
      end

      # Those for development are made by the server.
      def with_certificates(plan)
        encrypted = plan.binds.filter_map(&:tls).reject(&:for_development?).uniq
        return plan if encrypted.empty?

        require_relative "../web/certificates"
        encrypted.each { |tls| Web::Certificates.keep(tls) }
        warnings = encrypted.flat_map { |tls| Web::Certificates.warnings(tls) }
        plan.with(notes: [*plan.notes, *warnings].freeze)
      end

      def load_code(plan)
        require_relative "../service/code"
        require_relative "../telemetry/log"
        # With `forks`, records that the application produces are kept and not written.
        Service::Code.load(plan, plan.roles, log: Telemetry::Log.new(level: :warn, io: @err), forks: true)
      end

      # The server starts without its Redis, too.
      def with_store(plan)
        ::Chaton::Jobs.client.native.queues if plan.jobs && !plan.jobs.store_file
        plan
      rescue StoreUnavailable => e
        note = "the job store cannot be reached now, and a server that starts would wait for it: #{e.message}"
        plan.with(notes: [*plan.notes, note].freeze)
      end

      # The server limits its threads to the database pool once the application is loaded.
      def with_database(plan)
        max, message, = ActiveRecordPool.threads_max(plan, ActiveRecordPool.size)
        message ? plan.with(threads_max: max, notes: [*plan.notes, message].freeze) : plan
      end
    end
  end
end
