# frozen_string_literal: true

require "json"

module Chaton
  # Memory of a process: its allocator and heap sizes, garbage collection, the tracer of allocations.
  module Memory
    # The environment in which a process executes itself again, because allocator and Ruby read their variables when
    # a process starts; restored afterwards, so that subprocesses do not inherit the variables.
    module Environment
      # JSON: the pid for which the variables were set, their previous values, and notes for the process.
      VARIABLE = "CHATON_LAUNCHED"

      # @param environment [Hash{String=>String}] as the user set it
      # @param notes [Object] JSON-able, returned by {restore} in the process after exec
      # @return [Hash{String=>String}] the environment for exec
      def self.changed(environment, changes, notes, pid: Process.pid)
        before = changes.keys.to_h { |name| [name, environment[name]] }
        environment.merge(changes, VARIABLE => JSON.generate({ pid: pid, before: before, notes: notes }))
      end

      # Restores the variables.
      #
      # @return [Object, nil] the notes, if this process has executed itself again. Other processes that inherit the
      #   variable are told apart by their pid.
      def self.restore(env = ENV, pid: Process.pid)
        text = env.delete(VARIABLE)
        marker = text && JSON.parse(text)
        return unless marker.is_a?(Hash) && marker["before"].is_a?(Hash)

        reset(env, marker["before"])
        bundler = bundlers_copy
        bundler&.delete(VARIABLE)
        reset(bundler, marker["before"]) if bundler
        marker["notes"] if marker["pid"] == pid
      rescue JSON::ParserError
        nil
      end

      def self.reset(env, before)
        before.each { |name, value| value ? env[name] = value : env.delete(name) }
      end

      # Bundler.with_original_env uses this copy; `bundle exec` made it before any of our code ran.
      def self.bundlers_copy
        return unless defined?(::Bundler::ORIGINAL_ENV)

        copy = ::Bundler::ORIGINAL_ENV
        copy unless copy.frozen?
      end
      private_class_method :reset, :bundlers_copy
    end
  end
end
