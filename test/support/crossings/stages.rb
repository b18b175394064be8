# frozen_string_literal: true

require "socket"

module Crossings
  # The test's ends of the stages of all requests: what the application does, and the gates where it waits.
  class Stages
    TIMEOUT_S = 30
    class Late < StandardError; end

    # One request.
    class Stage
      # @param gate [String, nil] where the application waits for {#release}; it passes all others
      def initialize(gate)
        @gate = gate
        @words = []
        @lock = Mutex.new
        @changed = ConditionVariable.new
      end

      def attach(socket)
        @socket = socket
        while (word = socket.gets&.chomp)
          socket.puts if %w[arrived middle].include?(word) && word != @gate
          note(word)
        end
        note("done")
      rescue SystemCallError
        note("done")
      ensure
        socket.close
      end

      # Waits until the application has said this word.
      def wait(word)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + TIMEOUT_S
        @lock.synchronize do
          until @words.include?(word)
            left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
            raise Late, "the application has not come to '#{word}', only to #{@words}" if left <= 0
            @changed.wait(@lock, left)
          end
        end
      end

      # Lets the application go on at its gate, if it has one. Another line would wait unread until the application
      # closes its end, and what it said last would be lost by the reset.
      def release
        @socket.puts if @gate
      rescue IOError, SystemCallError
        # The application has gone on by itself, and is done.
        nil
      end

      def count(word) = @lock.synchronize { @words.count(word) }

      private

      def note(word)
        @lock.synchronize do
          @words << word
          @changed.broadcast
        end
      end
    end

    def initialize(path)
      @server = UNIXServer.new(path)
      @server.listen(1024)
      @stages = {}
      @acceptor = Thread.new { accept }
    end

    # @param id [Integer] of the request
    # @return [Stage]
    def open(id, gate: nil) = @stages[id.to_s] = Stage.new(gate)

    def close(id) = @stages.delete(id.to_s)

    def shut
      @acceptor.kill
      @server.close
    end

    private

    def accept
      loop do
        socket = @server.accept
        Thread.new { @stages[socket.gets.chomp]&.attach(socket) || socket.close }
      end
    end
  end
end
