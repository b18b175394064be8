# frozen_string_literal: true

require "json"
require_relative "../memory/tracer_control"

module Chaton
  class Service
    # Runs the commands that a worker gets from the supervisor, and a single process from its control socket. Called on
    # the support thread.
    class WorkerCommands
      # @param memory [Memory::Collector]
      # @param tracer_control [Memory::TracerControl]
      # @param log [Telemetry::Log]
      def initialize(memory:, tracer_control:, log:)
        @memory = memory
        @tracer_control = tracer_control
        @log = log
      end

      # @param line [String] JSON with the command's name, "do", and its arguments
      def call(line)
        command = JSON.parse(line)
        case command["do"]
        when "trim" then @memory.trim
        when "trace" then @tracer_control.call(command)
        else @log.warn("unknown command from the supervisor", command: line)
        end
      end
    end
  end
end
