# frozen_string_literal: true

require "socket"
require_relative "chaton_with"

module Bench
  # Chaton from this checkout that sends traces to a collector, which takes everything and keeps nothing.
  class ChatonTraced < ChatonWith
    REPLY = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    # @param sample [Float] the share of requests that is recorded
    def initialize(sample:, **rest)
      super(note: "traces at #{(sample * 100).round} %", **rest)
      @sample = sample
    end

    def configuration
      "#{super}\ntraces { endpoint \"http://127.0.0.1:#{@collector&.addr&.at(1) || 4318}\"; sample #{@sample} }"
    end

    def start(...)
      @collector = TCPServer.new("127.0.0.1", 0)
      @serving = Thread.new { serve }
      super
    end

    def stop
      super
      # ChatonWith stops its first boot too, which has no folder.
      return unless @folder

      @serving&.kill
      @collector&.close
    end

    private

    def serve
      loop { Thread.new(@collector.accept) { |socket| answer(socket) } }
    end

    def answer(socket)
      length = 0
      while (line = socket.gets)
        length = line.split.last.to_i if line.match?(/\Acontent-length:/i)
        next unless line == "\r\n"

        socket.read(length)
        length = 0
        socket.write(REPLY)
      end
    rescue SystemCallError
      nil
    end
  end
end
