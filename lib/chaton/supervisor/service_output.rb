# frozen_string_literal: true

module Chaton
  class Supervisor
    # Writes what a service prints to the log, a line each with the service's name before it.
    class ServiceOutput
      # A longer line is split.
      LINE_BYTES_MAX = 4096
      # Bytes that are read before other sources have their turn.
      READ_BYTES_MAX = 65_536

      # @return [IO] the end of the pipe that is read
      attr_reader :io

      # @param lines_max [Integer] lines in a second; further ones are dropped and counted
      def initialize(name, io, lines_max:, log:)
        @name = name
        @io = io
        @lines_max = lines_max
        @log = log
        @rest = "".b
        @second = nil
        @lines = @dropped = 0
      end

      # Writes the lines that have arrived.
      #
      # @return [Boolean] false at the end of the output
      def read(now_s)
        bytes = @io.read_nonblock(READ_BYTES_MAX, exception: false)
        return true if bytes == :wait_readable
        return false if bytes.nil?

        @rest << bytes
        lines = @rest.lines
        @rest = lines.last&.end_with?("\n") ? "".b : lines.pop.to_s
        lines << @rest.slice!(0, LINE_BYTES_MAX) while @rest.bytesize > LINE_BYTES_MAX
        lines.each { |line| write(line.chomp, now_s) }
        true
      rescue SystemCallError, IOError
        false
      end

      # Writes the last line, and closes the pipe.
      def close(now_s)
        return if @io.closed?

        read(now_s)
        write(@rest, now_s) unless @rest.empty?
        report_dropped
        @io.close
      end

      private

      def write(line, now_s)
        begin_second(now_s.floor) unless @second == now_s.floor
        return @dropped += 1 if @lines >= @lines_max

        @lines += 1
        line.scan(/.{1,#{LINE_BYTES_MAX}}/mno) { |part| @log.info("#{@name} | #{part}") }
      end

      def begin_second(second)
        report_dropped
        @second = second
        @lines = 0
      end

      def report_dropped
        return unless @dropped.positive?

        @log.warn("a service writes more than #{@lines_max} lines in a second; further ones were dropped",
                  service: @name, lines: @dropped)
        @dropped = 0
      end
    end
  end
end
