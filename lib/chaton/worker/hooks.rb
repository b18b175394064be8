# frozen_string_literal: true

require_relative "../errors"

module Chaton
  class Worker
    # Runs the blocks a configuration registers for moments of a process's life.
    class Hooks
      # A hook raised; the message names it and where it was written.
      class Failed < Chaton::Error; end

      # @param hooks [Hash{Symbol=>Array<Proc>}]
      # @param log [Telemetry::Log]
      def initialize(hooks, log:)
        @hooks = hooks
        @log = log
      end

      # Runs all hooks of a moment, in order; the first that raises ends it.
      #
      # @param name [Symbol]
      # @param arguments [Array] handed to each block
      # @return [void]
      # @raise [Failed]
      def run(name, *arguments)
        @hooks.fetch(name, []).each { |hook| call(name, hook, arguments) }
      end

      # Runs all hooks of a moment although one raises; for a process that leaves.
      #
      # @param name [Symbol]
      # @param arguments [Array]
      # @return [void]
      def run_all(name, *arguments)
        @hooks.fetch(name, []).each do |hook|
          call(name, hook, arguments)
        rescue Failed
          # Logged; leaving goes on.
          nil
        end
      end

      private

      def call(name, hook, arguments)
        hook.call(*arguments)
      rescue ScriptError, StandardError => e
        where = hook.source_location&.join(":")
        @log.exception(e, "hook #{name} failed", hook: where || name)
        raise Failed, "hook #{name} (#{where}) raised #{e.class}: #{e.message}"
      end
    end
  end
end
