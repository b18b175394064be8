# frozen_string_literal: true

require_relative "../native"
require_relative "../web/certificates"
require_relative "../web/env_template"
require_relative "../web/handler"
require_relative "../web/https_only"
require_relative "../web/public_files"
require_relative "../web/sendfile"
require_relative "../web/warm_up"
require_relative "role"

module Chaton
  class Workload
    # The role web in one process: the web engine and the handler of its requests.
    class WebRole < Role
      # Time for the responses to released requests to reach their clients.
      RELEASE_S = 0.2

      # @param app [#call] the Rack application
      # @param sockets [Array<TCPServer, UNIXServer>] in the order of `plan.binds`
      def initialize(plan, app:, sockets:, context:, log:)
        super(plan, context: context, log: log)
        @app = https_only(sendfile(app))
        @sockets = sockets
      end

      # @return [#call] runs one request
      def handler
        Web::Handler.new(@app, log: @log, error_handler: @plan.hooks[:lowlevel_error_handler],
                               early_hints: @plan.web[:early_hints])
      end

      # Runs the `warm_up` blocks. With HTTPS their requests are such: `https_only` redirects others.
      def warm_up
        envs = templates
        template = envs.find { |env| env["rack.url_scheme"] == "https" } || envs.first
        Web::WarmUp.new(@plan, app: @app, template: template, log: @log).call
      end

      # Accepts connections from its return on.
      def start(native_pool)
        # A preloader has done it for its workers.
        warm_up unless @plan.preload?
        @engine = Native::Web.start(native_pool, listeners, templates)
        Live.serve(@plan, @engine, log: @log)
      end

      # Reads the files of the certificates again.
      def reload_certificates = @engine.reload_certificates

      # Answers requests whose response has not begun with 503; the threads of running ones go on.
      def give_up
        released, = @engine.give_up
        @engine.wait_idle(RELEASE_S)
        @log.warn("released requests that had not begun", count: released) if released.positive?
      end

      # Closes the listening sockets in a forked child. The engine may have closed its own, and the system may have
      # given their numbers to other files.
      def close_in_child
        @sockets.zip(@copies || []).each do |socket, copy|
          next if socket.closed?

          copy.autoclose = true if copy && File.identical?(socket, copy)
          [socket, copy].compact.each(&:close)
        end
      end

      private

      def https_only(app)
        web = @plan.web
        return app unless web.https_only

        port = web.https_port || @plan.binds.find { |bind| bind.scheme == "https" }&.port || Web::HttpsOnly::PORT
        Web::HttpsOnly.new(app, port: port, except: Array(web.https_only_except).flatten, hsts: web.hsts,
                                proxied: !@plan.believed_peers.proxies.empty?)
      end

      def sendfile(app)
        roots = Array(@plan.web.sendfile_roots).flatten.map { |root| File.expand_path(root, @plan.root) }
        roots.empty? ? app : Web::Sendfile.new(app, roots, log: @log)
      end

      # Takes no more connections; responses say `Connection: close`.
      def quiet_engine = @engine.quiet

      # The engine owns these descriptors and closes them.
      def listeners
        @copies = @sockets.map { |socket| socket.dup.tap { |copy| copy.autoclose = false } }
        @copies.zip(@plan.binds).map do |copy, bind|
          tls = bind.tls && Web::Certificates.document(bind.tls)
          [copy.fileno, bind.scheme == "unix" ? :unix : :tcp, bind.to_s, tls]
        end
      end

      def templates
        @sockets.zip(@plan.binds).map { |socket, bind| Web::EnvTemplate.build(@plan, bind, port_of(socket, bind)) }
      end

      # A bind to port 0 got one from the operating system.
      def port_of(socket, bind)
        bind.scheme == "unix" ? 80 : socket.local_address.ip_port
      end
    end
  end
end
