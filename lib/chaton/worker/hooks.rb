# frozen_string_literal: true

require_relative "../errors"

module Chaton
  class Worker
    # Runs the blocks that a configuration registers for moments of a process's life.
    class Hooks
      # A hook raised; the message names the hook and where it is defined.
      class Failed < Chaton::Error; end

      def initialize(hooks, log:)
        @hooks = hooks
        @log = log
      end

      # Runs all hooks of a moment, in order; the first that raises ends it.
      #
      # @param arguments [Array] passed to each block
      # @raise [Failed]
      def run(name, *arguments)
        @hooks.fetch(name, []).each { |hook| call(name, hook, arguments) }
      end

      # Runs all hooks of a moment even if one raises; for a process that is exiting.
      def run_all(name, *arguments)
        @hooks.fetch(name, []).each do |hook|
          call(name, hook, arguments)
        rescue Failed
          # It is logged already.
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
