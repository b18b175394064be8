# frozen_string_literal: true

require "json"
require_relative "../errors"
require_relative "../native"
require_relative "../ruby_release"
require_relative "../telemetry/reply"

module Chaton
  module Memory
    # Starts and stops the allocation tracer of one process and sends its reports. Each start begins a new profile; the
    # previous one is kept until then.
    #
    # The tracer samples in short windows. While it runs, a thread opens and closes the windows, and waits without the
    # GVL between them.
    class TracerControl
      # Settings that a command may give.
      SETTINGS = %w[every duty window_ms].freeze
      # Settings of the configuration, where their names begin with `profile_`.
      CONFIGURED = %i[every duty window_ms samples_max stacks_max depth_max].freeze
      # Reports sent at a time; each holds its text in memory.
      REPORTS_MAX = 2
      # Limit of the wait for the end of a window when the process stops.
      END_S = 1.0

      # @return [Integer] this process's number
      attr_reader :worker

      # @param worker [Integer] this process's number
      # @param tracer [Class] replaced in tests
      def initialize(plan, worker:, log:, tracer: Native::Tracer)
        @configured = CONFIGURED.to_h { |name| [name, plan.memory[:"profile_#{name}"]] }.freeze
        @wanted = plan.memory.profile
        @worker = worker
        @log = log
        @kind = tracer
        @lock = Mutex.new
        @reports = []
      end

      # Starts tracing if the configuration says so.
      def start_if_configured
        @lock.synchronize { begin_with(@configured) } if @wanted && RubyRelease.unstable_calls?
      end

      # Carries out a command. Called on the support thread, or on the main thread without workers.
      #
      # @param command [Hash{String=>Object}] action: start, stop, status or report; reply_to: path of a Unix socket for
      #   the reply; for start also every, duty and window_ms
      def call(command)
        reply = Telemetry::Reply.new(command.fetch("reply_to"), log: @log)
        @lock.synchronize do
          case command["action"]
          when "start" then reply.deliver(header(**start(command)))
          when "stop" then reply.deliver(header(already: !finish))
          when "status" then reply.deliver(header)
          when "report" then report(reply)
          else reply.deliver(refusal("the tracer cannot #{command["action"]}"))
          end
        end
      rescue StandardError => e
        @log.exception(e, "the tracer could not carry out a command", action: command["action"])
        reply&.deliver(refusal("#{e.message} (#{e.class})"))
      end

      # Stops tracing, at the end of the process.
      def stop
        @lock.synchronize { finish }
        @thread&.join(END_S)
      end

      private

      def running? = @tracer&.running? || false

      def start(command)
        raise Chaton::Error, RubyRelease.no_tracer unless RubyRelease.unstable_calls?

        given = SETTINGS.filter_map { |name| [name.to_sym, command[name]] if command[name] }.to_h
        settings = { **@configured, **given }
        return { already: true } if running? && settings_kept?(given)

        finish
        begin_with(settings)
        { already: false }
      end

      def shown(settings) = settings.slice(:every, :duty, :window_ms)

      # A start without other settings leaves a running tracer alone.
      def settings_kept?(given) = given.all? { |name, value| @settings[name] == value }

      def begin_with(settings)
        tracer = @kind.new(JSON.generate({ **settings, worker: @worker }))
        tracer.start
        @tracer = tracer
        @settings = settings
        @thread = Thread.new { trace(tracer) }
        @thread.name = "chaton tracer"
        @log.info("profiling allocations", **shown(settings))
      end

      def trace(tracer)
        nil while tracer.window
      rescue StandardError => e
        tracer.stop
        @log.exception(e, "profiling has ended after an error")
      end

      # Does not wait for the thread, whose open window may last longer than the support thread may wait.
      #
      # @return [Boolean] whether a tracer was running
      def finish
        was = running?
        @tracer&.stop
        @log.info("tracing has stopped") if was
        was
      end

      # On a thread of its own, because it takes long to name the frames and to send megabytes.
      def report(reply)
        return reply.deliver(refusal("it has not profiled yet; run `chaton profile start`")) unless @tracer

        @reports.select!(&:alive?)
        return reply.deliver(refusal("it is busy with other reports; try again")) if @reports.size >= REPORTS_MAX

        tracer = @tracer
        facts = header
        @reports << Thread.new { send_report(reply, tracer, facts) }
        @reports.last.name = "chaton profile report"
      end

      def send_report(reply, tracer, facts)
        reply.deliver(facts, tracer.report)
      rescue StandardError => e
        @log.exception(e, "the tracer could not report")
        reply.deliver(refusal("#{e.message} (#{e.class})"))
      end

      def header(**facts)
        status = @tracer ? { **@tracer.status, **shown(@settings) } : { running: false }
        { worker: @worker, pid: Process.pid, ok: true, **status, **facts }
      end

      def refusal(reason) = { worker: @worker, pid: Process.pid, ok: false, error: reason }
    end
  end
end
