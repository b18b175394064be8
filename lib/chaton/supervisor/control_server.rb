# frozen_string_literal: true

require "fileutils"
require "json"
require "socket"
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

    # One client of the control socket: it sends a line of JSON and gets a line of JSON, with a limit on bytes and time.
    class ControlConnection
      REQUEST_BYTES_MAX = 4096
      LIFETIME_S = 5.0

      attr_reader :io
      # @return [Float] when it is closed (monotonic s)
      attr_reader :due_at

      def initialize(io, now_s)
        @io = io
        @due_at = now_s + LIFETIME_S
        @request = +""
        @reply = nil
      end

      def reading? = !@reply && !closed?

      def writing? = !@reply.nil? && !closed?

      def closed? = @io.closed?

      def close = @io.close

      # Reads what has arrived, and answers once the request is complete.
      #
      # @yieldparam request [Hash] with "command"
      # @yieldreturn [Hash] the reply
      def read(&answer)
        bytes = @io.read_nonblock(REQUEST_BYTES_MAX, exception: false)
        return if bytes == :wait_readable
        return close if bytes.nil?

        @request << bytes
        if @request.bytesize > REQUEST_BYTES_MAX
          reply(refusal("the request is longer than #{REQUEST_BYTES_MAX} bytes"))
        elsif @request.include?("\n")
          reply(respond(&answer))
        end
      rescue SystemCallError
        close
      end

      # Sends what it can, and closes after the last byte.
      def write
        sent = @io.write_nonblock(@reply, exception: false)
        return if sent == :wait_writable

        @reply = @reply.byteslice(sent..)
        close if @reply.empty?
      rescue SystemCallError
        close
      end

      private

      def respond
        request = JSON.parse(@request.lines.first)
        return refusal("the request is not a JSON object with a \"command\"") unless request.is_a?(Hash)

        yield(request)
      rescue JSON::ParserError
        refusal("the request is not JSON; send one line such as {\"command\":\"status\"}")
      end

      def refusal(reason) = { ok: false, error: reason }

      def reply(hash)
        @reply = "#{JSON.generate(hash)}\n"
        write
      end
    end
  end
end
