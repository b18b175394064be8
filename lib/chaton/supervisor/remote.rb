# frozen_string_literal: true

require_relative "../version"
require_relative "trace_order"

module Chaton
  class Supervisor
    # Turns a request of the control socket into a call on the main process.
    #
    # | command | call |
    # |---|---|
    # | status | `status` → Hash |
    # | stop | `stop` |
    # | quiet | `quiet` |
    # | phased-restart | `phased_restart`: new code worker by worker (SIGUSR1) |
    # | restart | `restart`: everything anew in place (SIGUSR2) |
    # | trace | `trace(order)` → numbers of the workers that were told; they answer by themselves, see {TraceOrder} |
    #
    # An action answers nil when it has begun, or a sentence that says why not.
    class Remote
      ACTIONS = {
        "stop" => :stop, "quiet" => :quiet, "restart" => :restart, "phased-restart" => :phased_restart
      }.freeze

      # @param actor [Supervisor, Single]
      def initialize(actor)
        @actor = actor
      end

      # @param request [Hash{String=>Object}]
      # @return [Hash] the reply
      def call(request)
        command = request["command"].to_s
        return { ok: true, version: VERSION, **@actor.status } if command == "status"
        return trace(request) if command == "trace"
        return unknown(command) unless (action = ACTIONS[command])

        refusal = @actor.public_send(action)
        refusal ? { ok: false, error: refusal, pid: Process.pid } : { ok: true, command: command, pid: Process.pid }
      rescue StandardError => e
        { ok: false, error: "#{command} failed: #{e.message} (#{e.class})" }
      end

      private

      def trace(request)
        order = TraceOrder.new(request)
        refusal = order.problem and return { ok: false, error: refusal }

        asked = @actor.trace(order)
        return { ok: false, error: order.nobody } if asked.empty?

        { ok: true, asked: asked, pid: Process.pid }
      end

      def unknown(command)
        known = ["status", *ACTIONS.keys, "trace"].join(", ")
        { ok: false, error: "unknown command #{command[0, 40].inspect}; known: #{known}" }
      end
    end
  end
end
