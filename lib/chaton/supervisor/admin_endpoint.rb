# frozen_string_literal: true

require "json"
require "pathname"
require "securerandom"
require_relative "../native"
require_relative "admin_process"
require_relative "event_loop"
require_relative "listeners"

module Chaton
  class Supervisor
    # The admin endpoint of a main process: its sockets, what serves on them (a process with workers, else a thread),
    # and the reports about the server that it gets. The process is started for the first client. A source of the event
    # loop.
    class AdminEndpoint
      # Reports within alive_timeout_s, so that one that does not come means something.
      REPORTS_PER_TIMEOUT = 4
      # Random bytes of the key of a link.
      KEY_BYTES = 32
      # Addresses on which a server listens for all, and those by which this machine reaches it.
      WILDCARDS = { "0.0.0.0" => "127.0.0.1", "::" => "::1" }.freeze

      def initialize(plan, inherited:, log:)
        @plan = plan
        @log = log
        @listeners = Listeners.new(plan.admin&.admin_bind || [], log: log, inherited: inherited)
      end

      def sockets = @listeners.sockets

      def addresses = @listeners.addresses

      # Listens. The application is not loaded yet: until the first report the server is starting.
      #
      # @yield in the process that serves, closes what the main process has besides
      # @raise [BindError]
      def open(scoreboard, &close_others)
        return unless @plan.admin

        @listeners.open(last: false)
        @scoreboard = scoreboard
        @close_others = close_others
        serve if @plan.workers.zero? || @plan.admin.admin_statsd || curves_begun?
      end

      # Sends a report if it differs from the one before, or if that one is old.
      def report(controller)
        return unless @server

        line = JSON.generate(controller.report)
        now_s = EventLoop.now_s
        return if line == @reported && (@report_at.nil? || now_s < @report_at)
        return forget_report unless send_report(line)

        @reported = line
        @report_at = now_s + (@plan.alive_timeout_s / REPORTS_PER_TIMEOUT) if @plan.alive_timeout_s.positive?
      end

      # Clients wait on them as long as nobody serves.
      def ios = @scoreboard && !@server ? sockets.values : []

      def readable(_io) = serve

      def writers = @process&.writers || []

      def writable(io) = @process.writable(io)

      def due_at = [@report_at, @process&.due_at].compact.min

      def tick(now_s) = @process&.tick(now_s)

      # @return [Array<Integer>] of its process, if there is one
      def pids = [@process&.pid].compact

      # A process has ended.
      def ended(pid, how)
        return false unless @process && pid == @process.pid

        @process.ended(how, EventLoop.now_s)
        forget_report
        true
      end

      def status
        return {} unless @scoreboard

        { admin: { listen: addresses, pid: @server && !@process ? Process.pid : @process&.pid } }
      end

      # Makes a link that opens the page, once. The control socket, over which it is asked for, belongs to the server's
      # user, and that is what allows it.
      #
      # @return [Hash{Symbol=>Object}, String] the link, or why there is none
      def link
        if @scoreboard.nil? || @plan.admin.admin_bind.empty?
          return "this server has no admin endpoint: write `admin { bind \"tcp://127.0.0.1:9394\" }` into its " \
                 "configuration and restart it with --full"
        end

        serve unless @server
        key = SecureRandom.hex(KEY_BYTES)
        return "the process of the admin endpoint is starting; try again" unless send_report(JSON.generate(link: key))

        { url: "http://#{authority}/open?key=#{key}", socket: (addresses.first unless tcp_bind),
          valid_s: @plan.admin.admin_link_s }.compact
      end

      # Serves no longer. The sockets stay open.
      def stop
        @server&.stop
        @server = @process = @scoreboard = nil
      end

      # Stops, and closes the sockets.
      def close
        stop
        @listeners.close
      end

      # Closes the main process's descriptors in a forked child.
      def close_in_child
        @process&.close_in_child
        @listeners.sockets.each_value(&:close)
      end

      private

      def serve
        @server = @plan.workers.zero? ? thread : process
        forget_report
      end

      # There were clients before: the curves of the page, which are kept beside the control socket, go on.
      def curves_begun? = @plan.control_socket && Pathname(@plan.control_socket).sub_ext(".history").exist?

      # The next turn of the event loop sends it again: when the process is there, or its pipe has room.
      def forget_report = @reported = @report_at = nil

      def thread = Native::Admin.start(JSON.generate(settings), @scoreboard)

      def process
        settings = { scoreboard: @scoreboard.fileno, config: self.settings }
        @process = AdminProcess.new(@plan, settings, log: @log, &@close_others)
      end

      def settings
        store = @plan.jobs.store_settings if @plan.role?(:jobs)
        @plan.admin_document(store: store, listeners: @plan.admin.admin_bind.map { |bind| listener(bind) })
      end

      def tcp_bind = @plan.admin.admin_bind.find { |bind| bind.scheme != "unix" }

      # @return [String] host and port by which a browser on this machine reaches it
      def authority
        bind = tcp_bind or return "localhost"
        host = WILDCARDS.fetch(bind.host, bind.host)
        "#{host.include?(":") ? "[#{host}]" : host}:#{sockets.fetch(bind.to_s).local_address.ip_port}"
      end

      def listener(bind)
        socket = sockets.fetch(bind.to_s)
        { fd: socket.fileno, unix: bind.scheme == "unix", host: bind.host.to_s, open: open?(socket.local_address) }
      end

      # @return [Boolean] whether only this machine, or only the owner of the file, reaches the socket
      def open?(address)
        return File.stat(address.unix_path).mode.nobits?(0o077) if address.unix?

        address.ipv4_loopback? || address.ipv6_loopback?
      end

      def send_report(line)
        return @process.report(line) if @process

        @server.report(line)
        true
      end
    end
  end
end
