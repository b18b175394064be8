# frozen_string_literal: true

require "logger"
require_relative "telemetry/line_format"
require_relative "telemetry/log_device"
require_relative "telemetry/running_work"

module Chaton
  # A logger for applications whose lines have the form of the server's own (`log_format`) and name the request, the job
  # or the batch in which they are written. Jobs and consumers have it as `logger` where there is no Rails.
  #
  # @example in a Rails application's config/application.rb
  #   config.logger = ActiveSupport::TaggedLogging.new(Chaton::Logger.new)
  class Logger < ::Logger
    # The form of its lines.
    class Formatter < ::Logger::Formatter
      # @return [String]
      def call(severity, _time, progname, message)
        fields = { progname: progname }.compact.merge(Telemetry::RunningWork.context)
        text = message.is_a?(String) ? message : msg2str(message)
        first, *rest = text.dup.force_encoding(Encoding::UTF_8).scrub("?").split(/\R/)
        format = Telemetry::LineFormat.new(Telemetry::LineFormat.process)
        format.line(severity, first.to_s, fields, (rest unless rest.empty?))
      end
    end

    # Rails silences its logger, for health checks and assets.
    #
    # @return [Logger]
    def self.new(...)
      include(::ActiveSupport::LoggerSilence) if defined?(::ActiveSupport::LoggerSilence)
      super
    end

    # @param output [IO] standard output or standard error
    def initialize(output = $stdout, level: DEBUG, progname: nil)
      super(nil, level: level, progname: progname, formatter: Formatter.new)
      @logdev = Telemetry::LogDevice.new(output)
    end
  end
end
