# frozen_string_literal: true

require "json"
require "socket"

module Chaton
  class Supervisor
    # Listening sockets that were open before this process began: from our own
    # predecessor (`CHATON_FDS`, a full restart or a mold) or from the service
    # manager (`LISTEN_FDS`, systemd socket activation).
    class InheritedSockets
      # JSON object: bind → descriptor.
      VARIABLE = "CHATON_FDS"
      # sd_listen_fds(3): the descriptors begin here.
      SYSTEMD_FIRST_FD = 3

      # @param sockets [Hash{String=>IO}] by bind
      # @return [Hash{String=>String}] environment for the successor
      def self.to_env(sockets)
        { VARIABLE => JSON.generate(sockets.transform_values(&:fileno)) }
      end

      # Takes the variables out of the environment: they hold for this process
      # only, not for programs the application starts.
      #
      # @param env [ENV, Hash]
      # @param pid [Integer]
      def initialize(env = ENV, pid: Process.pid)
        @ours = parse(env.delete(VARIABLE))
        listen_pid, listen_fds = %w[LISTEN_PID LISTEN_FDS].map { |name| env.delete(name) }
        env.delete("LISTEN_FDNAMES")
        count = listen_pid.to_i == pid ? listen_fds.to_i : 0
        @systemd = Array.new(count) { |number| server(SYSTEMD_FIRST_FD + number) }.compact
      end

      # @param bind [Chaton::Config::Bind]
      # @return [TCPServer, UNIXServer, nil] from our predecessor
      def ours(bind)
        fd = @ours.delete(bind.to_s)
        fd && server(fd)
      end

      # @param bind [Chaton::Config::Bind]
      # @return [TCPServer, UNIXServer, nil] from the service manager
      def activated(bind)
        found = @systemd.find { |socket| same?(socket, bind) }
        @systemd.delete(found)
      end

      # @return [Array<TCPServer, UNIXServer>] sockets no bind asked for
      def left
        @systemd + @ours.values.filter_map { |fd| server(fd) }
      end

      private

      def parse(json)
        json ? JSON.parse(json) : {}
      end

      def server(fd)
        # Both classes take any descriptor; which one it is, its address tells.
        family = Socket.for_fd(fd).tap { |socket| socket.autoclose = false }.local_address
        server = family.unix? ? UNIXServer.for_fd(fd) : TCPServer.for_fd(fd)
        server.close_on_exec = true
        server
      rescue SystemCallError
        nil
      end

      def same?(socket, bind)
        address = socket.local_address
        return bind.scheme == "unix" && address.unix? && address.unix_path == bind.path if address.unix?

        bind.scheme == "tcp" && address.ip_port == bind.port && addresses(bind).include?(address.ip_address)
      end

      def addresses(bind)
        Addrinfo.getaddrinfo(bind.host.delete("[]"), bind.port, nil, :STREAM).map(&:ip_address)
      rescue SocketError
        []
      end
    end
  end
end
