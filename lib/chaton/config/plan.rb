# frozen_string_literal: true

require_relative "admin_document"
require_relative "settings"
require_relative "believed_peers"
require_relative "engine_document"
require_relative "options"

module Chaton
  module Config
    # Settings of the web engine: limits, timeouts (seconds), and whether it offers early hints.
    WebSettings = Struct.new(*Options.names(:web), keyword_init: true)

    # A checked configuration: plain, frozen values. docs/CONFIGURATION.md describes every field; paths are absolute,
    # and a time that is off is 0.
    class Plan
      # Options that are fields of their own name, unchanged.
      OPTIONS = Options.names(:top, :queue) - %i[
        bind port directory environment tag rackup workers threads preload stdout_redirect pidfile control_socket
        restart_file tls
      ]
      attr_reader(*OPTIONS)

      attr_reader :root, :rackup, :environment, :tag, :config_file, :pidfile, :control_socket, :restart_file, :binds
      # @return [Integer] 0: one process serves without a supervisor
      attr_reader :workers
      # @return [Array<Array<Symbol>>] the roles of each worker: :web, :jobs, :streams
      attr_reader :roles_by_worker
      # @return [Array<Symbol>] the roles of a process without workers
      attr_reader :roles, :threads_min, :threads_max, :web, :memory
      # @return [JobsSettings, nil] nil where jobs are neither run nor enqueued
      attr_reader :jobs
      # @return [StreamsSettings, nil] nil where streams are neither read nor written
      attr_reader :streams, :live
      # @return [AdminSettings, nil] nil without an admin endpoint
      attr_reader :admin
      # @return [TracesSettings, nil] nil without traces
      attr_reader :traces
      # @return [Array(String, String, Boolean), nil] standard output, standard error, append
      attr_reader :stdout_redirect
      # @return [Array<ServiceLine>] those of the environment
      attr_reader :services
      # @return [Hash{Symbol=>Object}] Arrays of blocks by moment, and :lowlevel_error_handler, which may be nil
      attr_reader :hooks
      # @return [Array<String>] notes for the user, and what he should change
      attr_reader :notes, :warnings

      # @param fields [Hash{Symbol=>Object}] all of the above, preload, and the fields of the
      #   questions below
      def initialize(**fields)
        @fields = fields.freeze
        fields.each { |name, value| instance_variable_set(:"@#{name}", value) }
        freeze
      end

      # @return [Boolean] whether the application is loaded before workers are forked
      def preload? = @preload

      # @return [Boolean] whether anything reads the metrics
      def metrics? = !admin.nil?

      # @return [Boolean] whether a source sets the maximum of threads
      def threads_max_given? = @threads_max_given

      # @return [Boolean] whether a source sets addresses
      def binds_given? = @binds_given

      # @return [Boolean] whether a source sets the control socket
      def control_socket_given? = @control_socket_given

      # @param index [Integer] of a worker; those above the configured number have the roles of the first one
      def roles_of(index) = roles_by_worker[index] || roles_by_worker.first || roles

      # @return [Boolean] whether any process has it
      def role?(role) = (workers.zero? ? roles : roles_by_worker.flatten).include?(role)

      # @return [Boolean] whether it must have exited before its replacement starts: both would be the same member of
      #   their groups, and Kafka would fence the older one while it still works
      def retires_first?(index) = roles_of(index).include?(:streams) && streams.permanent_names?

      # @return [Plan] of a process with these roles. If it has only the role jobs, or only streams, the threads and the
      #   shutdown timeout of that section apply.
      def of_process(roles)
        own = { jobs: jobs, streams: streams }[roles.first] if roles.size == 1
        return self unless own && (own.threads || own.shutdown_timeout_s)

        with(**(own.threads || {}).to_h, shutdown_timeout_s: own.shutdown_timeout_s || shutdown_timeout_s)
      end

      # @param slot [Integer] its place on the scoreboard
      # @param static_files [Hash, nil] see {Web::PublicFiles}
      def engine_document(roles:, slot:, index: 0, static_files: nil)
        EngineDocument.new(self, roles: roles, slot: slot, index: index, static_files: static_files).to_json
      end

      # @return [Boolean] whether connections of any bind are encrypted
      def tls? = binds.any?(&:tls)

      # @return [BelievedPeers] whose word counts about the client of a request
      def believed_peers = BelievedPeers.new(self)

      # @param store [Hash, nil] settings of the store of the jobs; nil: none is read
      # @param listeners [Array<Hash>] none in an application that mounts the dashboard
      # @return [Hash{Symbol=>Object}] as the native extension takes it
      def admin_document(store:, listeners: []) = AdminDocument.new(self, store: store, listeners: listeners).to_h

      # @param name [Symbol] of a field
      def [](name) = @fields.fetch(name)

      def development? = environment == "development"

      def with(**changes) = Plan.new(**@fields, **changes)

      def to_h
        @fields.merge(binds: binds.map(&:to_s), web: web.to_h, jobs: jobs&.to_h, streams: streams&.to_h,
                      live: live.to_h, services: services.map(&:to_h),
                      memory: memory.to_h, admin: admin&.to_h, traces: traces&.to_h,
                      hooks: hooks.transform_values { |blocks| Array(blocks).size })
      end
    end
  end
end
