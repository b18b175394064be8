# frozen_string_literal: true

require "json"
require_relative "../file_limit"
require_relative "../ruby_release"
require_relative "../version"
require_relative "options"

module Chaton
  module Config
    # The settings of one process as the native extension takes them: one JSON document with a section for the pool, for
    # the memory, and for each role of the process. Rust has no defaults: every field is set here, by its option.
    class EngineDocument
      # Time the worker has, beyond its graceful stop, before it leaves by force when the supervisor is gone.
      ORPHAN_GRACE_S = 5.0
      # Members of {JobsSettings} that the jobs engine takes unchanged.
      OF_JOBS = %i[queues mode prefetch_s prefetch_max ack_delay_s beat_s catch_up_s claim_turn_s
                   labels].freeze

      # @param plan [Plan]
      # @param roles [Array<Symbol>] of the process
      # @param slot [Integer] the worker's place on the scoreboard
      # @param index [Integer] of the worker
      # @param static_files [Hash, nil] see {Web::PublicFiles}
      def initialize(plan, roles:, slot:, index:, static_files: nil)
        @plan = plan
        @roles = roles
        @slot = slot
        @index = index
        @static_files = static_files
      end

      # @return [Hash{Symbol=>Hash}] by section
      def to_h
        sections = [:pool, :memory, *(:traces if @plan.traces), *@roles]
        sections.to_h { |section| [section, send(section)] }
      end

      # @return [String]
      def to_json(*) = JSON.generate(to_h)

      private

      def pool
        { **of_plan(:threads_min, :threads_max, :blocked_ms, :stall_ms, :preempt_ms, :background_share,
                    :thread_idle_s),
          preempt: RubyRelease.unstable_calls?, gvl_wait: @plan.metrics?,
          orphan_exit_s: @plan.shutdown_timeout_s + ORPHAN_GRACE_S, slot: @slot }
      end

      def memory
        memory = @plan.memory
        { **memory.to_h.slice(:summary, :collect, :idle_full_ms, :trim_idle_s), longlife: memory.longlife_growth }
      end

      def traces = @plan.traces.engine(@plan, @index)

      def web
        queue = { count_max: @plan.queue_limit, bytes_max: @plan.queue_bytes_max, age_max_ms: ms(@plan.queue_age_s) }
        { limits: limits, timeouts: of_web(Options::TIMEOUTS), queue: queue,
          stream_bodies: Array(@plan.web[:stream_bodies]).flatten, static_files: @static_files,
          compression: compression, http2: @plan.web[:http2], proxy_protocol: proxied,
          forwarded: @plan.believed_peers.engine,
          server_timing: @plan.web.server_timing, **of_web(Options::TLS),
          **of_plan(:access_log, :retry_after_s, :accept_grace_ms, :accept_defer_ms) }
      end

      def limits
        limits = of_web(Options::LIMITS)
        { **limits, connections_max: FileLimit.connections_max(limits.fetch(:connections_max)) }
      end

      # Binds whose connections begin with the client's address; no sources: anybody may send it.
      def proxied
        @plan.binds.each_with_index.filter_map do |bind, place|
          sources = bind.proxy_protocol
          { listener: place, sources: (sources unless sources == true) } if sources
        end
      end

      def compression
        web = @plan.web
        return unless web.compress

        { bytes_min: web.compress_bytes_min, level: web.compress_level, jitter_bytes_max: web.compress_jitter_bytes }
      end

      def jobs
        info = %i[debug info].include?(@plan.log_level)
        log = { per_s: @plan.jobs.log_jobs_per_s, info: info }
        { store: @plan.jobs.store_settings, log: log, tag: @plan.tag, application: @plan.jobs.application,
          version: VERSION, **OF_JOBS.to_h { |name| [name, @plan.jobs[name]] } }
      end

      def streams
        streams = @plan.streams
        instance_id = "#{streams.member}-#{@index}" if streams.static_membership
        groups = streams.groups.map { |group| { **group, group: { **group[:group], instance_id: instance_id } } }
        statistics_ms = @plan.metrics? ? ms(@plan.admin.admin_broker_statistics_s) : 0
        { groups: groups, **streams.engine, broker_statistics_ms: statistics_ms }
      end

      def of_plan(*names) = names.to_h { |name| [name, @plan.public_send(name)] }

      def of_web(options) = options.to_h { |option| [option.name, @plan.web[option.name]] }

      def ms(seconds) = (seconds * 1000).round
    end
  end
end
