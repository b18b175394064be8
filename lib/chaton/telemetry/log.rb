# frozen_string_literal: true

require_relative "line_format"
require_relative "log_device"
require_relative "running_work"

module Chaton
  # Output for people and programs: log, process title, redirected files.
  module Telemetry
    # The server's log: one line per event, for people or as JSON. A line that is written in a request, a job or a batch
    # names it. The same Log works in a forked worker.
    #
    # @example
    #   log = Chaton::Telemetry::Log.new(format: :human)
    #   log.info("worker ready", worker: 0, pid: 4711)
    #   # 2025-11-21 09:30:00.123 [4700] INFO  worker ready  worker=0 pid=4711
    class Log
      LEVELS = { debug: 0, info: 1, warn: 2, error: 3 }.freeze
      # Deeper backtraces are cut: an endless recursion must not make a line of megabytes.
      BACKTRACE_LINES_MAX = 40

      # @return [Symbol] the lowest level that is written
      attr_reader :level

      # The log of a server. Its form becomes that of all lines of this process.
      def self.of(plan, io: $stdout)
        LineFormat.process = plan.log_format
        new(format: plan.log_format, level: plan.log_level, io: io)
      end

      # @param format [Symbol] :human or :json
      # @param level [Symbol] :debug, :info, :warn or :error
      # @param io [IO] where lines go
      def initialize(format: :human, level: :info, io: $stdout)
        @format = LineFormat.new(format)
        @level = level.to_sym
        @rank = LEVELS.fetch(@level)
        @device = LogDevice.new(io)
      end

      LEVELS.each_key do |level|
        # @!method debug(message, **fields)
        # @param message [String] one sentence, no line break
        # @param fields [Hash{Symbol=>Object}] facts, written as key=value
        define_method(level) { |message, **fields| write(level, message, fields) }
      end

      # Logs an exception with its class, message, cause and backtrace.
      #
      # @param message [String] what was being done
      def exception(error, message, **fields)
        write(:error, message, fields.merge(error: error.class.name, reason: message_of(error)),
              backtrace_of(error))
      end

      # @return [Boolean] whether a person may read it: text on a terminal
      def terminal? = !@format.json? && @device.terminal?

      # Writes a line as it is, for people.
      def plain(line)
        @device.write("#{@format.clean(line)}\n") unless @format.json? || LEVELS.fetch(:info) < @rank
      end

      private

      def write(level, message, fields, backtrace = nil)
        return if LEVELS.fetch(level) < @rank

        context = RunningWork.context
        fields = fields.merge(context) { |_, own, _| own } unless context.empty?
        @device.write(@format.line(level, message, fields, backtrace))
        nil
      end

      def backtrace_of(error)
        lines = cut(error.backtrace)
        seen = [error]
        while (cause = seen.last.cause) && !seen.include?(cause)
          seen << cause
          lines << "caused by #{cause.class}: #{message_of(cause)}"
          lines.concat(cut(cause.backtrace))
        end
        lines
      end

      def message_of(error)
        error.message.to_s
      rescue Exception => e # rubocop:disable Lint/RescueException -- a message may be a method that fails
        "(the error's message cannot be read: #{e.class})"
      end

      def cut(backtrace)
        lines = Array(backtrace)
        return lines.dup if lines.size <= BACKTRACE_LINES_MAX

        lines.first(BACKTRACE_LINES_MAX) + ["... #{lines.size - BACKTRACE_LINES_MAX} more"]
      end
    end
  end
end
