# frozen_string_literal: true

require_relative "../version"
require_relative "worker_request"

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

      # @param request [Hash{String=>Object}]
      # @return [Hash] the reply
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

      # @param refusal [String, nil]
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
  end
end
