# frozen_string_literal: true

require "json"
require_relative "../memory/tracer_control"

module Chaton
  class Service
    # What the supervisor, or the control socket of a single process, wants a worker to do. Carried out on the
    # support thread.
    class Orders
      # @param memory [Memory::Collector]
      # @param desk [Memory::TracerControl]
      # @param log [Telemetry::Log]
      def initialize(memory:, desk:, log:)
        @memory = memory
        @desk = desk
        @log = log
      end

      # @param line [String] JSON with "do" and what belongs to it
      # @return [void]
      def call(line)
        order = JSON.parse(line)
        case order["do"]
        when "trim" then @memory.trim
        when "trace" then @desk.call(order)
        else @log.warn("an order of the supervisor is not known here", order: line)
        end
      end
    end
  end
end
