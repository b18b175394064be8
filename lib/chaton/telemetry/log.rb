# frozen_string_literal: true

require "json"
require "time"

module Chaton
  # Output for people and programs: log, process title, redirected files.
  module Telemetry
    # The server's log: one line per event, for people or as JSON.
    #
    # A line is one `write`, so lines of several threads and processes never mix, and no lock is needed: the same Log
    # works in a forked worker. Standard output and error are written by Rust, which waits for no reader
    # (`crates/core/src/log.rs`).
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

      # @param format [Symbol] :human or :json
      # @param level [Symbol] :debug, :info, :warn or :error
      # @param io [IO] where lines go
      def initialize(format: :human, level: :info, io: $stdout)
        @json = format.to_sym == :json
        @level = level.to_sym
        @rank = LEVELS.fetch(@level)
        @io = io
        @io.sync = true if @io.respond_to?(:sync=)
        @descriptor = @io.fileno if @io.is_a?(IO) && @io.fileno.between?(1, 2)
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
      # @param fields [Hash{Symbol=>Object}]
      def exception(error, message, **fields)
        write(:error, message, fields.merge(error: error.class.name, reason: message_of(error)),
              backtrace_of(error))
      end

      # @return [Boolean] whether a person may read it: text on a terminal
      def terminal? = !@json && @io.respond_to?(:tty?) && @io.tty?

      # Writes a line as it is, for people.
      def plain(line)
        put("#{clean(line)}\n") unless @json || LEVELS.fetch(:info) < @rank
      rescue IOError, SystemCallError
        # As in {#write}.
        nil
      end

      private

      def write(level, message, fields, backtrace = nil)
        return if LEVELS.fetch(level) < @rank

        put(@json ? json(level, message, fields, backtrace) : human(level, message, fields, backtrace))
        nil
      rescue IOError, SystemCallError
        # The reader of the output has gone, which must not stop the server.
        nil
      end

      def put(lines)
        return @io.write(lines) unless @descriptor

        # Not before the first line: a process that executes itself again does not need it.
        require_relative "../native"
        Native.write_log(lines, @descriptor == 2)
      end

      def human(level, message, fields, backtrace)
        time = Time.now.strftime("%Y-%m-%d %H:%M:%S.%L")
        line = format("%s [%d] %-5s %s", time, Process.pid, level.to_s.upcase, clean(message))
        line << "  " << fields.map { |key, value| "#{key}=#{quote(value)}" }.join(" ") unless fields.empty?
        line << "\n"
        backtrace&.each { |entry| line << "    " << clean(entry) << "\n" }
        line
      end

      def json(level, message, fields, backtrace)
        record = { time: Time.now.utc.iso8601(3), pid: Process.pid, level: level, message: clean(message) }
        record.update(fields.transform_values { |value| value.is_a?(String) ? text(value) : value })
        record[:backtrace] = backtrace.map { |entry| text(entry) } if backtrace
        "#{JSON.generate(record)}\n"
      end

      def quote(value)
        text = text(value)
        text.match?(/\A[^ "=[:cntrl:]]+\z/) ? text : JSON.generate(text)
      end

      # Text of the application or of a client must not forge a second line.
      def clean(value)
        text(value).gsub(/[\r\n]+/, " ")
      end

      def text(value)
        value.to_s.dup.force_encoding(Encoding::UTF_8).scrub("?")
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
