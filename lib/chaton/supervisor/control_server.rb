# frozen_string_literal: true

require "fileutils"
require "socket"
require_relative "control_connection"
require_relative "event_loop"

module Chaton
  class Supervisor
    # The socket over which `chaton status`, `stop`, `restart`, `quiet`, `trace` and `dashboard` talk to a running
    # server. Only its owner may connect (mode 0600). A source of the event loop.
    class ControlServer
      # Further clients wait in the kernel's queue.
      CLIENTS_MAX = 16
      # What accept raises while nothing is free: the client waits in the kernel's queue, and its socket stays readable.
      NOTHING_FREE = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS].freeze
      # Pause before the next accept then.
      ACCEPT_PAUSE_S = 1.0

      # @param path [String, nil] nil: no control socket
      def initialize(path, log:)
        @path = path
        @log = log
        @clients = []
        @owner = Process.pid
      end

      # Listens. A server without a control socket can still serve, so a failure is logged and not raised.
      #
      # @yieldparam request [Hash]
      # @yieldreturn [Hash] the reply
      def open(&answer)
        return if @path.nil? || taken?

        @answer = answer
        FileUtils.mkdir_p(File.dirname(@path))
        @server = with_umask(0o177) { UNIXServer.new(@path) }
        @inode = File.stat(@path).ino
      rescue SystemCallError, ArgumentError => e
        @log.warn("no control socket: `chaton status`, `stop` and the like cannot reach this server",
                  path: @path, reason: e.message)
      end

      def ios
        listening = @server && !@accept_at && @clients.size < CLIENTS_MAX ? [@server] : []
        listening + @clients.select(&:reading?).map(&:io)
      end

      def writers = @clients.select(&:writing?).map(&:io)

      def readable(io)
        io.equal?(@server) ? accept : client(io)&.read(&@answer)
        sweep
      end

      # Sends more of a reply.
      # @param io [IO] the client's socket
      def writable(io)
        client(io)&.write
        sweep
      end

      def due_at = [*@clients.map(&:due_at), @accept_at].compact.min

      # Closes the connections of clients that take too long.
      def tick(now_s)
        @accept_at = nil if @accept_at && now_s >= @accept_at
        @clients.each { |client| client.close if now_s >= client.due_at }
        sweep
      end

      # Closes all connections. The process that made the socket's file removes it.
      def close
        close_in_child
        return unless @server && Process.pid == @owner

        File.unlink(@path) if File.stat(@path).ino == @inode
      rescue Errno::ENOENT
        nil
      end

      # Closes the descriptors only; in a forked child.
      def close_in_child
        @server&.close
        @clients.each(&:close)
        @clients.clear
      end

      private

      # A killed server leaves a socket file without a listener.
      def taken?
        return false unless File.exist?(@path)

        UNIXSocket.new(@path).close
        @log.warn("the control socket belongs to another running server; set control_socket to give this one its own",
                  path: @path)
        true
      rescue Errno::ECONNREFUSED
        File.unlink(@path)
        false
      end

      def accept
        io = @server.accept_nonblock(exception: false)
        @clients << ControlConnection.new(io, EventLoop.now_s) unless io == :wait_readable
      rescue *NOTHING_FREE
        @accept_at = EventLoop.now_s + ACCEPT_PAUSE_S
      rescue SystemCallError
        # The client has disconnected between the wake-up and the accept.
        nil
      end

      def client(io) = @clients.find { |one| one.io.equal?(io) }

      def sweep = @clients.reject!(&:closed?)

      def with_umask(umask)
        before = File.umask(umask)
        yield
      ensure
        File.umask(before)
      end
    end
  end
end
