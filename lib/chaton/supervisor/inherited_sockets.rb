# frozen_string_literal: true

require "json"
require "socket"

module Chaton
  class Supervisor
    # Listening sockets that were open before this process began: passed by the process that started it (`CHATON_FDS`, a
    # full restart or a preloader) or by the service manager (`LISTEN_FDS`, systemd socket activation).
    class InheritedSockets
      # JSON object: bind → descriptor.
      VARIABLE = "CHATON_FDS"
      # JSON array: the binds among them whose sockets belong to the service manager.
      ACTIVATED = "CHATON_ACTIVATED"
      # The number of the first descriptor, by sd_listen_fds(3).
      SYSTEMD_FIRST_FD = 3

      # @return [Hash{String=>String}] environment for the successor
      def self.to_env(sockets)
        { VARIABLE => JSON.generate(sockets.transform_values(&:fileno)) }
      end

      # Takes the variables out of the environment: they are valid in this process only, not in programs that the
      # application starts.
      def initialize(env = ENV, pid: Process.pid)
        @passed = parse(env.delete(VARIABLE), {})
        @activated = parse(env.delete(ACTIVATED), [])
        listen_pid, listen_fds = %w[LISTEN_PID LISTEN_FDS].map { |name| env.delete(name) }
        env.delete("LISTEN_FDNAMES")
        count = listen_pid.to_i == pid ? listen_fds.to_i : 0
        @systemd = Array.new(count) { |number| server(SYSTEMD_FIRST_FD + number) }.compact
      end

      # @return [Array<String>] the binds whose sockets belong to the service manager
      attr_reader :activated

      # @return [TCPServer, UNIXServer, nil] passed by the process that started this one
      def passed(bind)
        fd = @passed.delete(bind.to_s)
        fd && server(fd)
      end

      # @return [TCPServer, UNIXServer, nil] passed by the service manager
      def from_service_manager(bind)
        found = @systemd.find { |socket| same?(socket, bind) }
        @activated |= [bind.to_s] if found
        @systemd.delete(found)
      end

      # @return [Array<TCPServer, UNIXServer>] sockets without a bind
      def left
        @systemd + @passed.values.filter_map { |fd| server(fd) }
      end

      private

      def parse(json, none)
        json ? JSON.parse(json) : none
      end

      def server(fd)
        # Both classes take any descriptor; the address tells which one is right.
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

        bind.scheme != "unix" && address.ip_port == bind.port && addresses(bind).intersect?(served(socket, address))
      end

      # systemd's `ListenStream=9292` is `[::]:9292`, which serves clients of IPv4, too.
      def served(socket, address)
        both = address.ip_address == "::" && !socket.getsockopt(:IPV6, :V6ONLY).bool
        [address.ip_address, *("0.0.0.0" if both)]
      end

      def addresses(bind)
        Addrinfo.getaddrinfo(bind.host.delete("[]"), bind.port, nil, :STREAM).map(&:ip_address)
      rescue SocketError
        []
      end
    end
  end
end
