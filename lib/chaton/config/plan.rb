# frozen_string_literal: true

require_relative "memory_settings"
require_relative "options"

module Chaton
  module Config
    # What the web engine is started with: its limits, its timeouts (seconds), and whether it offers early hints.
    WebSettings = Struct.new(*Options.of_web, keyword_init: true)

    # A configuration that was checked: plain values, frozen. Every field is described in docs/CONFIGURATION.md;
    # paths are absolute, a time that is off is 0.
    class Plan
      # @return [String] absolute path
      attr_reader :root, :rackup
      # @return [String]
      attr_reader :environment, :tag
      # @return [String, nil] absolute path
      attr_reader :config_file, :pidfile, :control_socket
      # @return [Array<Bind>]
      attr_reader :binds
      # @return [Integer] 0: one process serves without a supervisor
      attr_reader :workers
      # @return [Array<Array<Symbol>>] for each worker what it serves: :web, :jobs, :streams
      attr_reader :roles_by_worker
      # @return [Array<Symbol>] what a process without workers serves
      attr_reader :roles
      # @return [Integer]
      attr_reader :threads_min, :threads_max
      # @return [Float]
      attr_reader :thread_idle_s, :stall_ms, :preempt_ms
      # @return [Integer]
      attr_reader :queue_limit, :queue_bytes_max, :retry_after_s
      # @return [Float]
      attr_reader :queue_age_s, :accept_grace_ms, :accept_defer_ms
      # @return [WebSettings]
      attr_reader :web
      # @return [MemorySettings]
      attr_reader :memory
      # @return [JobsSettings, nil] nil where nothing is said about jobs
      attr_reader :jobs
      # @return [StreamsSettings, nil] nil where nothing is said about streams
      attr_reader :streams
      # @return [Float]
      attr_reader :alive_timeout_s, :boot_timeout_s, :shutdown_timeout_s
      # @return [Float]
      attr_reader :restart_delay_s, :restart_delay_max_s, :crash_loop_window_s
      # @return [Integer]
      attr_reader :crash_loop_count
      # @return [Symbol]
      attr_reader :log_format, :log_level, :access_log
      # @return [Array(String, String, Boolean), nil] standard output, standard error, append
      attr_reader :stdout_redirect
      # @return [Hash{Symbol=>Object}] Arrays of blocks by moment, and :lowlevel_error_handler, which may be nil
      attr_reader :hooks
      # @return [Array<String>] what the user should know although nothing is wrong
      attr_reader :notes

      # @param fields [Hash{Symbol=>Object}] all of the above, and preload, threads_max_given, binds_given
      def initialize(**fields)
        @fields = fields.freeze
        fields.each { |name, value| instance_variable_set(:"@#{name}", value) }
        freeze
      end

      # @return [Boolean] whether the application is loaded before workers are forked
      def preload? = @preload

      # @return [Boolean] whether somebody chose the maximum of threads
      def threads_max_given? = @threads_max_given

      # @return [Boolean] whether somebody chose what to listen on
      def binds_given? = @binds_given

      # @param index [Integer] of a worker; one above the configured number does what the first one does
      # @return [Array<Symbol>]
      def roles_of(index) = roles_by_worker[index] || roles_by_worker.first || roles

      # @return [Boolean] whether any process has it
      def role?(role) = (workers.zero? ? roles : roles_by_worker.flatten).include?(role)

      # @param index [Integer] of a worker
      # @return [Boolean] whether it has to be gone before another one comes for it: both would be the same member of
      #   their groups, and Kafka shuts out the older one while it still works
      def retires_first?(index) = roles_of(index).include?(:streams) && streams.lasting_names?

      # @param roles [Array<Symbol>]
      # @return [Plan] the one of a process with these roles: where jobs are all it runs, or streams, their own
      #   threads and time to stop hold
      def of_process(roles)
        own = { jobs: jobs, streams: streams }[roles.first] if roles.size == 1
        return self unless own && (own.threads || own.shutdown_timeout_s)

        with(**(own.threads || {}).to_h, shutdown_timeout_s: own.shutdown_timeout_s || shutdown_timeout_s)
      end

      def development? = environment == "development"

      # @param changes [Hash{Symbol=>Object}]
      # @return [Plan] another one
      def with(**changes) = Plan.new(**@fields, **changes)

      # @return [Hash{Symbol=>Object}] JSON-able
      def to_h
        @fields.merge(binds: binds.map(&:to_s), web: web.to_h, jobs: jobs&.to_h, streams: streams&.to_h,
                      memory: memory.to_h, hooks: hooks.transform_values { |blocks| Array(blocks).size })
      end
    end
  end
end
