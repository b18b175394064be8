# frozen_string_literal: true

require "fileutils"
require "json"
require "timeout"

module Bench
  module Live
    # Thousands of clients in one process: clients.rs, built once.
    class Clients
      SOURCE = File.expand_path("clients.rs", __dir__)
      PROGRAM = File.expand_path("../../tmp/bench/live-clients", __dir__)
      OPEN_LIMIT_S = 120
      # Time for the last messages to arrive.
      SETTLE_S = 1.5

      # @param port [Integer]
      # @param count [Integer]
      # @param streams [Integer] client N reads stream N, modulo this
      # @param stale [Boolean] whether they come back without a valid position
      def initialize(port, count, streams, stale: false)
        build unless FileUtils.uptodate?(PROGRAM, [SOURCE])
        @out = IO.popen([PROGRAM, *[port, count, streams, stale ? 1 : 0].map(&:to_s)], "r+")
        line = Timeout.timeout(OPEN_LIMIT_S) { @out.gets }
        raise "not all streams were opened: #{line.inspect}" unless line&.start_with?("open ")
      rescue Timeout::Error
        close
        raise "not all of #{count} streams were opened within #{OPEN_LIMIT_S} s"
      end

      # @return [Hash{Symbol => Float}] what they got since the last call
      def read(settle_s: SETTLE_S)
        sleep settle_s
        @out.puts
        JSON.parse(@out.gets, symbolize_names: true)
      end

      def close
        return if @out.closed?

        Process.kill(:KILL, @out.pid)
        @out.close
      end

      private

      def build
        FileUtils.mkdir_p(File.dirname(PROGRAM))
        system("rustc", "--edition", "2021", "-O", "-o", PROGRAM, SOURCE, exception: true)
      end
    end
  end
end
