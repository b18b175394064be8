# frozen_string_literal: true

require "json"
require_relative "../file_limit"
require_relative "../ruby_release"
require_relative "../version"
require_relative "options"

module Chaton
  module Config
    # The settings of one process as the native extension takes them: one JSON document with a section for the pool, for
    # the memory, and for each role of the process. Rust has no defaults: every field is set here, by its option
    # ({Option}'s `engine`) or from what this process is.
    class EngineDocument
      # Time the worker has, beyond its graceful stop, before it leaves by force when the supervisor is gone.
      ORPHAN_GRACE_S = 5.0

      # @param slot [Integer] the worker's place on the scoreboard
      # @param static_files [Hash, nil] see {Web::PublicFiles}
      def initialize(plan, roles:, slot:, index:, static_files: nil)
        @plan = plan
        @roles = roles
        @slot = slot
        @index = index
        @static_files = static_files
      end

      def to_h
        sections = [:pool, :memory, *(:traces if @plan.traces), *@roles]
        sections.to_h { |section| [section, send(section)] }
      end

      def to_json(*) = JSON.generate(to_h)

      private

      def pool
        { **Options.document(:pool, @plan),
          threads_min: @plan.threads_min, threads_max: @plan.threads_max, preempt: RubyRelease.unstable_calls?,
          gvl_wait: @plan.metrics?, orphan_exit_s: @plan.shutdown_timeout_s + ORPHAN_GRACE_S, slot: @slot }
      end

      def memory
        { **Options.document(:memory, @plan.memory), longlife: @plan.memory.longlife_growth }
      end

      def traces = @plan.traces.engine(@plan, @index)

      def web
        { **Options.document(:web, @plan.web),
          retry_after_s: @plan.retry_after_s, limits: limits,
          queue: Options.document(:web, :queue, @plan),
          timeouts: Options.document(:web, :timeouts, @plan.web),
          stream_bodies: Array(@plan.web[:stream_bodies]).flatten, static_files: @static_files,
          compression: compression, proxy_protocol: proxied, forwarded: @plan.believed_peers.engine }
      end

      def limits
        limits = Options.document(:web, :limits, @plan.web)
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
        jobs = @plan.jobs
        log = { per_s: jobs.log_jobs_per_s, info: %i[debug info].include?(@plan.log_level) }
        { **Options.document(:jobs, jobs),
          queues: jobs.queues, mode: jobs.mode, labels: jobs.labels, beat_s: jobs.beat_s,
          application: jobs.application, store: jobs.store_settings, log: log, tag: @plan.tag, version: VERSION }
      end

      def streams
        streams = @plan.streams
        instance_id = "#{streams.member}-#{@index}" if streams.static_membership
        groups = streams.groups.map { |group| { **group, group: { **group[:group], instance_id: instance_id } } }
        statistics_s = @plan.metrics? ? @plan.admin.admin_broker_statistics_s : 0.0
        { **streams.engine, groups: groups, broker_statistics_s: statistics_s }
      end
    end
  end
end
