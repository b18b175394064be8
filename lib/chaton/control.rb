# frozen_string_literal: true

require "json"
require "socket"
require_relative "errors"

module Chaton
  # Control of a running server.
  module Control
    # A client of the control socket. It sends one command and gets one answer.
    #
    # @example
    #   Chaton::Control::Client.new("tmp/chaton.sock").call("status")["workers"]
    class Client
      # Time for an answer, which the server gives from memory.
      TIMEOUT_S = 5.0

      # @param path [String] the server's control socket
      # @param timeout_s [Numeric]
      def initialize(path, timeout_s: TIMEOUT_S)
        @path = path
        @timeout_s = timeout_s
      end

      # @param command [String] "status", "stop", "quiet", "restart", "phased-restart", "restart-worker", "ask",
      #   "report" or "dashboard"
      # @param arguments [Hash{Symbol=>Object}] further fields of the request
      # @return [Hash{String=>Object}] the answer
      # @raise [ControlError] when no server answers, or it refuses
      def call(command, **arguments)
        answer = exchange(JSON.generate({ command: command, **arguments }))
        raise ControlError, answer["error"] || "the server refused #{command}" unless answer["ok"]

        answer
      end

      private

      def exchange(line)
        deadline = now_s + @timeout_s
        UNIXSocket.open(@path) do |socket|
          socket.write("#{line}\n")
          JSON.parse(read(socket, deadline))
        end
      rescue Errno::ENOENT, Errno::ECONNREFUSED
        raise ControlError, "no server listens at #{@path}; is it running, and was it started in this " \
                            "directory? Otherwise give the path of its control socket: --control-socket FILE"
      rescue Errno::EACCES
        raise ControlError, "#{@path}: permission denied; only the user who runs the server may control it"
      rescue JSON::ParserError, SystemCallError, ArgumentError => e
        raise ControlError, "the server at #{@path} did not answer properly: #{e.message}"
      end

      def read(socket, deadline)
        answer = +""
        loop do
          bytes = socket.read_nonblock(65_536, exception: false)
          return answer if bytes.nil?

          bytes == :wait_readable ? wait(socket, deadline) : answer << bytes
        end
      end

      def wait(socket, deadline)
        return if socket.wait_readable([deadline - now_s, 0].max)

        raise ControlError, "the server at #{@path} did not answer within #{@timeout_s} s; " \
                            "its main process is busy or stopped"
      end

      def now_s
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
