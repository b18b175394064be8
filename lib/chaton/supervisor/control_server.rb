# frozen_string_literal: true

require "fileutils"
require "socket"
require_relative "conversation"
require_relative "event_loop"

module Chaton
  class Supervisor
    # The socket through which `chaton status`, `stop`, `restart` and `quiet`
    # talk to a running server. Open to its owner only (mode 0600); a source of
    # the event loop.
    class ControlServer
      # Further clients wait in the kernel's queue.
      CLIENTS_MAX = 16

      # @param path [String, nil] nil: no control socket
      # @param log [Telemetry::Log]
      def initialize(path, log:)
        @path = path
        @log = log
        @clients = []
        @owner = Process.pid
      end

      # Listens; a server that cannot be controlled still serves, so what is in
      # the way is said and not raised.
      #
      # @yieldparam request [Hash]
      # @yieldreturn [Hash] the reply
      # @return [void]
      def open(&answer)
        return if @path.nil? || taken?

        @answer = answer
        FileUtils.mkdir_p(File.dirname(@path))
        @server = with_umask(0o177) { UNIXServer.new(@path) }
        @inode = File.stat(@path).ino
      rescue SystemCallError, ArgumentError => e
        @log.warn("no control socket: `chaton status` and its like will not reach this server",
                  path: @path, reason: e.message)
      end

      # @return [Array<IO>]
      def ios
        listening = @server && @clients.size < CLIENTS_MAX ? [@server] : []
        listening + @clients.select(&:reading?).map(&:io)
      end

      # @return [Array<IO>]
      def writers
        @clients.select(&:writing?).map(&:io)
      end

      # @return [void]
      def readable(io)
        io.equal?(@server) ? accept : client(io)&.read(&@answer)
        sweep
      end

      # @return [void]
      def writable(io)
        client(io)&.write
        sweep
      end

      # @return [Float, nil]
      def due_at
        @clients.map(&:due_at).min
      end

      # Ends clients that take too long.
      #
      # @return [void]
      def tick(now_s)
        @clients.each { |client| client.close if now_s >= client.due_at }
        sweep
      end

      # Closes all and removes the file, in the process that made it.
      #
      # @return [void]
      def close
        let_go
        return unless @server && Process.pid == @owner

        File.unlink(@path) if File.stat(@path).ino == @inode
      rescue Errno::ENOENT
        nil
      end

      # Closes the descriptors only; in a forked child.
      #
      # @return [void]
      def let_go
        @server&.close
        @clients.each(&:close)
        @clients.clear
      end

      private

      # A socket nobody listens on is left over from a killed server.
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
        @clients << Conversation.new(io, EventLoop.now_s) unless io == :wait_readable
      rescue SystemCallError
        # The client has gone between the wake-up and the accept.
        nil
      end

      def client(io)
        @clients.find { |one| one.io.equal?(io) }
      end

      def sweep
        @clients.reject!(&:closed?)
      end

      def with_umask(umask)
        before = File.umask(umask)
        yield
      ensure
        File.umask(before)
      end
    end
  end
end
