# frozen_string_literal: true

require_relative "../version"

module Chaton
  class Supervisor
    # Turns a request of the control socket into a call on the controller.
    #
    # | command | call |
    # |---|---|
    # | status | `status` → Hash |
    # | stop | `stop` |
    # | quiet | `quiet` |
    # | phased-restart | `phased_restart`: new code worker by worker (SIGUSR1) |
    # | restart | `restart`: starts the program again in place (SIGUSR2) |
    # | restart-worker | `restart_worker(number)`: a new process with the same code |
    # | ask | `ask(request)` → numbers of the workers that got it, see {WorkerRequest} |
    # | report | `report` → Hash, for the dashboard in an application |
    # | dashboard | `dashboard` → Hash with a one-time link to the page |
    class ControlCommands
      ACTIONS = {
        "stop" => :stop, "quiet" => :quiet, "restart" => :restart, "phased-restart" => :phased_restart
      }.freeze

      def initialize(controller)
        @controller = controller
      end

      def call(request)
        command = request["command"].to_s
        return { ok: true, version: VERSION, **@controller.status } if command == "status"
        return { ok: true, report: @controller.report } if command == "report"
        return ask(request) if command == "ask"
        return dashboard if command == "dashboard"
        return begun(command, restart_worker(request["worker"])) if command == "restart-worker"
        return unknown(command) unless (action = ACTIONS[command])

        begun(command, @controller.public_send(action))
      rescue StandardError => e
        { ok: false, error: "#{command} failed: #{e.message} (#{e.class})" }
      end

      private

      def begun(command, refusal)
        refusal ? { ok: false, error: refusal, pid: Process.pid } : { ok: true, command: command, pid: Process.pid }
      end

      def restart_worker(number)
        return "worker must be the number of a worker" unless number.is_a?(Integer)

        @controller.restart_worker(number)
      end

      def dashboard
        link = @controller.dashboard
        link.is_a?(Hash) ? { ok: true, **link } : { ok: false, error: link }
      end

      def ask(request)
        asked = WorkerRequest.new(request)
        problem = asked.problem and return { ok: false, error: problem }

        workers = @controller.ask(asked)
        return { ok: false, error: asked.no_worker } if workers.empty?

        { ok: true, asked: workers, pid: Process.pid }
      end

      def unknown(command)
        known = ["status", *ACTIONS.keys, "restart-worker", "ask", "report", "dashboard"].join(", ")
        { ok: false, error: "unknown command #{command[0, 40].inspect}; known: #{known}" }
      end
    end

    # A question of `chaton profile`, `chaton top` or the dashboard to workers, as it came over the control socket:
    #
    #   {"command":"ask","action":"start","worker":null,"reply_to":"/…/s","every":64}
    #
    # Workers answer directly on the Unix socket `reply_to`, on which the client listens. So the main process neither
    # waits for a worker nor forwards its answer.
    class WorkerRequest
      # `running` asks for what runs now, and `backtraces` for what each thread does; `chaton top` and the dashboard
      # show them. The dashboard also has arguments of jobs filtered, and jobs of cron entries enqueued.
      ACTIONS = %w[start stop status report running backtraces filter-arguments run-cron].freeze
      # Texts for these two, and their longest size: a command has 64 KB at most (crates/core/src/process/channel.rs),
      # in which each byte may need two.
      TEXTS = { "arguments" => 16 << 10, "name" => 200 }.freeze
      # Settings of a tracer that the request may override, and their ranges.
      SETTINGS = { "every" => 1..1_000_000, "duty" => 0.001..1.0, "window_ms" => 0.1..1000.0 }.freeze
      # The longest path of a Unix socket: 108 bytes with the zero at its end (unix(7)).
      PATH_BYTES_MAX = 107

      def initialize(request)
        @request = request
      end

      # @return [String, nil] what is wrong with it
      def problem
        return "ask needs an action, one of #{ACTIONS.join(", ")}" unless ACTIONS.include?(@request["action"])
        return "worker must be a number, or null for all" unless worker.nil? || worker.is_a?(Integer)

        path = @request["reply_to"]
        unless path.is_a?(String) && path.start_with?("/") && path.bytesize <= PATH_BYTES_MAX
          return "reply_to must be the absolute path of a Unix socket, of #{PATH_BYTES_MAX} bytes at most"
        end

        name, bytes_max = TEXTS.find { |one, most| @request.fetch(one, "").to_s.bytesize > most }
        return "#{name} must be a text of #{bytes_max} bytes at most" if name

        name, range = SETTINGS.find { |one, allowed| settings.key?(one) && !fits?(settings[one], allowed) }
        "#{name} must be a number from #{range.begin} to #{range.end}" if name
      end

      # @return [String] why no worker got it
      def no_worker
        return "no worker is ready; `chaton status` shows what they do" unless worker

        "there is no worker #{worker} that is ready; `chaton status` lists them"
      end

      # @param index [Integer] a worker's number
      def for?(index) = worker.nil? || worker == index

      # @return [Hash{String=>Object}] for a worker
      def to_h
        { "do" => "ask", "action" => @request["action"], "reply_to" => @request["reply_to"], **settings, **texts }
      end

      private

      def worker = @request["worker"]

      def settings = @request.slice(*SETTINGS.keys).compact

      def texts = @request.slice(*TEXTS.keys).transform_values(&:to_s)

      def fits?(value, range)
        value.is_a?(range.begin.is_a?(Integer) ? Integer : Numeric) && range.cover?(value)
      end
    end
  end
end
