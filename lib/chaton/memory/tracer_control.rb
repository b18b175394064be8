# frozen_string_literal: true

require_relative "../native"
require_relative "trace_reply"

module Chaton
  module Memory
    # The allocation tracer of one process: switches it as it is told, and tells what it has seen. A start begins a new
    # profile; that of the last one is kept until then.
    #
    # The tracer looks only within short windows. Between them a thread of ours waits without the GVL; there is none
    # while nothing is traced.
    class TracerControl
      # Settings an order may give.
      SETTINGS = %w[every duty window_ms].freeze
      # Of the configuration, each with `trace_` before it.
      CONFIGURED = %i[every duty window_ms samples_max stacks_max depth_max].freeze
      # Reports that may be written at once; each holds its text in memory.
      REPORTS_MAX = 2
      # How long the end of a window is waited for when the process leaves.
      END_S = 1.0

      # @param plan [Config::Plan]
      # @param worker [Integer] this process's number
      # @param log [Telemetry::Log]
      # @param tracer [Class] replaced in tests
      def initialize(plan, worker:, log:, tracer: Native::Tracer)
        @configured = CONFIGURED.to_h { |name| [name, plan.memory[:"trace_#{name}"]] }.freeze
        @wanted = plan.memory.trace
        @worker = worker
        @log = log
        @kind = tracer
        @lock = Mutex.new
        @reports = []
      end

      # Traces where the configuration says so.
      #
      # @return [void]
      def start_if_configured
        @lock.synchronize { begin_with(@configured) } if @wanted
      end

      # Carries out an order; called on the support thread, or on the main thread where there are no workers.
      #
      # @param order [Hash{String=>Object}] action: start, stop, status or report; reply_to: path of a Unix socket, on
      #   which the answer is waited for; and, to start, every, duty and window_ms
      # @return [void]
      def call(order)
        reply = TraceReply.new(order.fetch("reply_to"), log: @log)
        @lock.synchronize do
          case order["action"]
          when "start" then reply.deliver(header(**start(order)))
          when "stop" then reply.deliver(header(already: !finish))
          when "status" then reply.deliver(header)
          when "report" then report(reply)
          else reply.deliver(refusal("the tracer cannot #{order["action"]}"))
          end
        end
      rescue StandardError => e
        @log.exception(e, "the tracer could not carry out an order", action: order["action"])
        reply&.deliver(refusal("#{e.message} (#{e.class})"))
      end

      # Ends tracing; at the end of the process.
      #
      # @return [void]
      def stop
        @lock.synchronize { finish }
        @thread&.join(END_S)
      end

      private

      def running? = @tracer&.running? || false

      def start(order)
        given = SETTINGS.filter_map { |name| [name.to_sym, order[name]] if order[name] }.to_h
        settings = { **@configured, **given }
        return { already: true } if running? && settings_kept?(given)

        finish
        begin_with(settings)
        { already: false }
      end

      def shown(settings) = settings.slice(:every, :duty, :window_ms)

      # A start that asks for nothing else leaves alone what goes on.
      def settings_kept?(given) = given.all? { |name, value| @settings[name] == value }

      # In one place, so that what is noted is what runs.
      def begin_with(settings)
        tracer = @kind.new({ **settings, worker: @worker })
        tracer.start
        @tracer = tracer
        @settings = settings
        @thread = Thread.new { trace(tracer) }
        @thread.name = "chaton tracer"
        @log.info("tracing allocations", **shown(settings))
      end

      def trace(tracer)
        nil while tracer.window
      rescue StandardError => e
        tracer.stop
        @log.exception(e, "tracing has ended")
      end

      # The thread finds out by itself: a window that is open may take a while, which the support thread does not have.
      #
      # @return [Boolean] whether there was something to end
      def finish
        was = running?
        @tracer&.stop
        @log.info("tracing has stopped") if was
        was
      end

      # To name the frames of many stacks, and to hand over megabytes, takes time: the support thread has none.
      def report(reply)
        return reply.deliver(refusal("it has not traced yet; `chaton trace start` begins")) unless @tracer

        @reports.select!(&:alive?)
        return reply.deliver(refusal("it is busy with other reports; ask again")) if @reports.size >= REPORTS_MAX

        tracer = @tracer
        facts = header
        @reports << Thread.new { send_report(reply, tracer, facts) }
        @reports.last.name = "chaton trace report"
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
