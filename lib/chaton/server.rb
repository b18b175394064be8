# frozen_string_literal: true

require_relative "core"
require_relative "config"
require_relative "telemetry/log"

module Chaton
  # A web server inside of this process, for tests and tools: no signal handlers, no control socket, no files, nothing
  # but this application. The configuration file is not read.
  #
  # @example
  #   server = Chaton::Server.new(app, port: 0).start
  #   Net::HTTP.get(URI("http://127.0.0.1:#{server.port}/"))
  #   server.stop
  class Server
    # Time for running requests at {#stop}.
    STOP_S = 5.0

    # @return [String]
    attr_reader :host

    # @param app [#call] a Rack application
    # @param port [Integer] 0: one that is free
    # @param host [String]
    # @param settings [Hash{Symbol=>Object}] options of the configuration, such as `threads: "1:5"`, `log_level: "info"`
    # @raise [ConfigError]
    def initialize(app, port: 0, host: "127.0.0.1", **settings)
      @app = app
      @host = host
      settings.each_key { |name| Config.known("Chaton::Server.new", name, Config::Options::BY_NAME.keys) }
      address = host.include?(":") ? "[#{host}]" : host
      given = { log_level: "warn", **settings, bind: ["tcp://#{address}:#{port}"], web: true, workers: 0 }
      @plan = Config.load({ **given, config_file: Config::Loader::NO_FILE }, env: ENV.to_h)
    end

    # Returns when it accepts connections.
    #
    # @return [self]
    # @raise [BindError]
    def start
      require_relative "workload"
      require_relative "supervisor/listeners"
      raise Error, "this Chaton::Server runs already; stop it first" if @workload

      log = Telemetry::Log.of(@plan)
      @listeners = Supervisor::Listeners.new(@plan.binds, log: log).tap(&:open)
      context = Workload::ProcessContext.new(roles: [:web], scoreboard: Native::Scoreboard.new(1), slot: 0)
      @workload = Workload.new(@plan, app: @app, sockets: @listeners.sockets.values, context: context, log: log).start
      self
    ensure
      # It did not start.
      @listeners&.close unless @workload
    end

    # @return [Integer] the port that it listens on
    def port = @listeners.sockets.values.first.local_address.ip_port

    # Finishes running requests.
    #
    # @param timeout_s [Float]
    # @return [Boolean] whether all of them ended in time
    def stop(timeout_s: STOP_S)
      return true unless @workload

      @workload.stop(timeout_s)
    ensure
      @listeners&.close
      @workload = nil
    end
  end
end
