# frozen_string_literal: true

require "json"
require "time"
require_relative "traces"

module Chaton
  module Telemetry
    # The form of a line of the log: for people, or a JSON object. Rust writes the same forms
    # (`crates/core/src/log/line.rs`).
    class LineFormat
      class << self
        # @return [Symbol] :human or :json, for all loggers of this process
        def process = @process || :human

        # Sets it, for the lines of Rust threads too.
        def process=(name)
          json = name.to_sym == :json
          if json || process == :json
            require_relative "../native"
            Native.log_json = json
          end
          @process = name.to_sym
        end
      end

      # @param name [Symbol] :human or :json
      def initialize(name)
        @json = name.to_sym == :json
      end

      # @return [Boolean] whether lines are JSON objects
      def json? = @json

      # @return [String] with its line break
      def line(level, message, fields = {}, backtrace = nil)
        @json ? json(level, message, fields, backtrace) : human(level, message, fields, backtrace)
      end

      # Text of the application or of a client must not forge a second line.
      def clean(value)
        text(value).gsub(/[\r\n]+/, " ")
      end

      private

      def human(level, message, fields, backtrace)
        time = Time.now.strftime("%Y-%m-%d %H:%M:%S.%L")
        line = format("%s [%d] %-5s %s", time, Process.pid, level.to_s.upcase, clean(message))
        line << "  " << fields.map { |key, value| "#{key}=#{quote(value)}" }.join(" ") unless fields.empty?
        line << "\n"
        backtrace&.each { |entry| line << "    " << clean(entry) << "\n" }
        line
      end

      def json(level, message, fields, backtrace)
        record = { time: Time.now.utc.iso8601(3), pid: Process.pid, level: level.to_s.downcase,
                   message: clean(message) }
        record.update(fields.transform_values { |value| value.is_a?(String) ? text(value) : value })
        trace_id = Traces.trace_id
        record[:trace_id] = trace_id if trace_id
        record[:backtrace] = backtrace.map { |entry| text(entry) } if backtrace
        "#{JSON.generate(record)}\n"
      end

      def quote(value)
        text = text(value)
        text.match?(/\A[^ "=[:cntrl:]]+\z/) ? text : JSON.generate(text)
      end

      def text(value)
        value.to_s.dup.force_encoding(Encoding::UTF_8).scrub("?")
      end
    end
  end
end
