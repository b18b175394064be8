# frozen_string_literal: true

require_relative "jobs_settings"
require_relative "plan"
require_relative "streams_builder"

module Chaton
  module Config
    # Makes the plan from sources without problems: with defaults, absolute paths, and everything frozen.
    class PlanBuilder
      # Used if no address is set.
      DEFAULT_BIND = Bind.new(scheme: "tcp", host: "0.0.0.0", port: Types::BindAddress::PORT).freeze

      # As many clients as one worker has come back to the others within this time without a queue (10,000 of them).
      DRAIN_S_MAX = 5.0

      # @param root [String] directory in which the command was typed
      def initialize(sources, root:, environment:, config_file:, roles:, sidekiq_file:)
        @sources = sources
        @root = File.expand_path(sources[:directory] || ".", root)
        @environment = environment
        @config_file = config_file
        @roles = roles
        @sidekiq_file = sidekiq_file
      end

      def plan
        Plan.new(
          root: @root, environment: @environment, config_file: @config_file, tag: tag,
          binds: binds, binds_given: @sources.set?(:binds), roles: @roles.on, web: web, jobs: jobs, streams: streams,
          memory: memory, live: live, admin: admin, traces: traces, hooks: hooks,
          services: @sources.services.select { |line| line.in?(@environment) }.freeze,
          notes: @sources.notes.freeze, warnings: @sources.warnings.freeze,
          **paths, **processes, **Plan::OPTIONS.to_h { |name| [name, value(name)] }
        )
      end

      private

      def value(name, settings = {})
        return @sources[name] if @sources.set?(name)

        Options[name].default_in(@environment, settings)
      end

      def tag = value(:tag) || File.basename(@root)

      # Of all processes.
      def roles = @roles.by_worker.empty? ? @roles.on : @roles.by_worker.flatten.uniq

      # Without the role web there is nothing to listen on.
      def binds
        return [].freeze unless roles.include?(:web)

        binds = @sources[:binds] || [DEFAULT_BIND]
        binds = binds.map(&:encrypted_for_development) if value(:tls) == :dev
        binds.flat_map { |bind| bind.under(@root).addresses }.uniq(&:to_s).freeze
      end

      def web = WebSettings.new(**values(:web)).freeze

      def memory = MemorySettings.new(**values(:memory)).freeze

      def values(scope, settings = {}) = Options.names(scope).to_h { |name| [name, value(name, settings)] }

      # A half of the time of the stop is left for responses, and clients come back to the other workers meanwhile.
      def live
        values = values(:live)
        drain_s = [value(:shutdown_timeout_s) / 2.0, DRAIN_S_MAX].min
        LiveSettings.new(**values, drain_s: drain_s).at(@root, @environment, jobs_settings).freeze
      end

      def admin
        return unless @sources[:admin_bind] || @sources[:admin_statsd]

        binds = (@sources[:admin_bind] || []).flat_map { |bind| bind.under(@root).addresses }.uniq(&:to_s)
        binds = binds.map { |bind| AdminSettings.private_bind(bind) }.freeze
        values = values(:admin)
        AdminSettings.new(**values, admin_bind: binds, admin_hosts: values[:admin_hosts].flatten.freeze).freeze
      end

      def traces
        return unless @sources.section?(:traces) && value(:traces_enabled)

        TracesSettings.new(**values(:traces)).freeze
      end

      def jobs
        jobs_settings if @roles.jobs?
      end

      def jobs_settings
        given = { sidekiq_file: @sidekiq_file, store_given: @sources.set?(:store) }
        JobsBuilder.new(@root, **given) { |name| value(name, place) }.settings
      end

      def streams
        return unless @roles.streams?

        StreamsBuilder.new(@root, tag: tag, lines: @sources.topics) { |name| value(name, place) }.settings
      end

      def place = { root: @root, environment: @environment }

      def processes
        by_worker = @roles.by_worker
        {
          workers: by_worker.size, roles_by_worker: by_worker,
          preload: value(:preload, { workers: { every: by_worker.size } }), **value(:threads).to_h
        }
      end

      def paths
        out, err, append = value(:stdout_redirect)
        {
          rackup: absolute(value(:rackup)), pidfile: absolute(value(:pidfile)),
          control_socket: absolute(value(:control_socket, { root: @root, roles: roles })),
          control_socket_given: @sources.set?(:control_socket), restart_file: absolute(value(:restart_file)),
          stdout_redirect: (out || err) && [absolute(out), absolute(err), append].freeze
        }
      end

      def absolute(path) = path && File.expand_path(path, @root).freeze

      def hooks
        moments = HookNames::ALL.to_h { |hook| [hook.name, @sources.hooks.fetch(hook.name, []).freeze] }
        { **moments, HookNames::ERROR_HANDLER => @sources.hooks.fetch(HookNames::ERROR_HANDLER, []).first }.freeze
      end
    end
  end
end
