# frozen_string_literal: true

require_relative "core"
require_relative "config"
require_relative "native_library"
require_relative "ruby_release"

module Chaton
  # Chaton for `rackup -s chaton`, and for `rails server` in development: one process with an application that is
  # already loaded. The `chaton` command runs several workers; see {RailsServer}.
  module RackHandler
    # Options of rackup => ours.
    NAMES = { environment: :environment, Threads: :threads, early_hints: :early_hints }.freeze

    # Serves until the process is stopped.
    #
    # @param app [#call] the Rack application
    # @param options [Hash{Symbol=>Object}] as rackup and Rails give them: Host, Port, Threads ("1:32"),
    #   environment, Silent, pid, and with Rails user_supplied_options
    # @yield [server] before it runs
    # @yieldparam server [Single]
    # @raise [ConfigError] listing all errors
    def self.run(app, **options, &)
      return elsewhere.run(app, **options, &) unless NativeLibrary.new.system?

      serve(app, options, &)
    end

    def self.serve(app, options)
      require_relative "single"
      require_relative "telemetry/log"
      plan = plan(options)
      log = Telemetry::Log.of(plan)
      plan.notes.each { |note| log.info(note) }
      [*plan.warnings, *RubyRelease.warnings].each { |warning| log.warn(warning) }
      log.debug("allocator and heap sizes are unchanged: a Rack handler does not execute its process again")
      server = Single.new(plan, argv: arguments(options), app: app, log: log)
      yield server if block_given?
      status = server.run
      exit status unless status.zero?
    end

    # @return [Module] Puma's handler, which takes the same options: for development on another system
    # @raise [NativeLibrary::Unusable] if the bundle has no Puma
    def self.elsewhere
      require "rack/handler/puma"
      defined?(::Rackup::Handler::Puma) ? ::Rackup::Handler::Puma : ::Rack::Handler::Puma
    rescue LoadError
      NativeLibrary.new.check
    end

    # @return [Hash{String=>String}] for `rackup -h`
    def self.valid_options
      {
        "Host=HOST" => "address to listen on, or unix://PATH (default: localhost)",
        "Port=PORT" => "port to listen on (default: 9292)",
        "Threads=MIN:MAX" => "threads that run the application (default: 1:32)",
        "Silent" => "log warnings only"
      }
    end

    # @param options [Hash{Symbol=>Object}] see {run}
    # @return [Config::Plan] of one process
    # @raise [Config::Invalid]
    def self.plan(options)
      given = given(options)
      plan = read(options)
      # A handler always serves the given application, also if the configuration has no web role.
      plan = Config.load(given = { **given, web: true }) unless plan.roles.include?(:web) && plan.role?(:web)
      plan = plan.with(binds: Config.load({ **given, **address(options) }).binds) if address?(options, plan)
      plan = plan.with(notes: [*plan.notes, single(plan)].freeze) if plan.workers.positive?
      # Rack and Rails write the pidfile themselves.
      pidfile = options[:pid] ? nil : plan.pidfile
      plan.with(workers: 0, roles_by_worker: [].freeze, preload: false, pidfile: pidfile)
    end

    # @param options [Hash{Symbol=>Object}] see {run}
    # @return [Config::Plan] of the configuration
    # @raise [Config::Invalid]
    def self.read(options) = Config.load(given(options))

    # @param options [Hash{Symbol=>Object}] of Rails
    # @return [Array<String>] the same for the `chaton` command
    def self.command_arguments(options)
      given = given(options)
      given.update(address(options)) if address?(options, read(options))
      given[:pidfile] = options[:pid] if options[:pid]
      written = given.flat_map { |name, value| Config::Options[name].arguments(value) }
      [*written, *(options[:config] if options[:user_supplied_options]&.include?(:config))]
    end

    def self.given(options)
      given = NAMES.filter_map { |theirs, ours| [ours, options[theirs]] unless options[theirs].nil? }.to_h
      # rackup names RACK_ENV, which a loaded Rails application does not read first.
      given[:environment] = Config.rails_environment || given[:environment]
      given[:log_level] = "warn" if options[:Silent]
      given.compact
    end

    # The framework's defaults yield to the configuration file.
    def self.address?(options, plan)
      return false unless options[:Host] || options[:Port]

      supplied = options[:user_supplied_options]
      supplied.nil? || !(supplied & %i[Host Port]).empty? || !plan.binds_given?
    end

    def self.address(options)
      host = options[:Host].to_s
      return { bind: [host] } if host.include?("://")
      return { bind: ["unix://#{host}"] } if host.start_with?("/", ".")

      host = "localhost" if host.empty?
      host = "[#{host}]" if host.include?(":") && !host.start_with?("[")
      { bind: ["tcp://#{host}:#{options[:Port] || Config::Types::BindAddress::PORT}"] }
    end

    def self.single(plan)
      "workers #{plan.workers} has no effect here: a Rack handler serves from one process; run `chaton` for workers"
    end

    # Arguments for a restart: from Rails, or from the kernel, because rackup removes its own from ARGV.
    def self.arguments(options)
      return options[:restart_cmd].split.drop(1) if options[:restart_cmd]

      typed = File.binread("/proc/self/cmdline").split("\0")
      script = typed.index($PROGRAM_NAME)
      script ? typed.drop(script + 1) : ARGV.dup
    rescue SystemCallError
      ARGV.dup
    end
    private_class_method :serve, :elsewhere, :given, :address?, :address, :single, :arguments
  end
end
