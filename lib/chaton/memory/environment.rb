# frozen_string_literal: true

require "json"

module Chaton
  # What memory a process takes: the allocator and the heap it is started with, and what is done about both while
  # it runs.
  module Memory
    # The environment a process is executed anew with, and the way back: allocator and Ruby read their variables
    # when the process begins; whatever the process starts later must not find them.
    module Environment
      # JSON: the process the variables were set for, what they were before, and what there is to be logged.
      VARIABLE = "CHATON_LAUNCHED"

      # @param environment [Hash{String=>String}] as the user set it
      # @param changes [Hash{String=>String}]
      # @param said [Object] JSON-able, handed to the new life of the process
      # @param pid [Integer]
      # @return [Hash{String=>String}] the one to execute with
      def self.changed(environment, changes, said, pid: Process.pid)
        before = changes.keys.to_h { |name| [name, environment[name]] }
        environment.merge(changes, VARIABLE => JSON.generate({ pid: pid, before: before, said: said }))
      end

      # Puts the variables back.
      #
      # @param env [ENV, Hash{String=>String}]
      # @param pid [Integer]
      # @return [Object, nil] what the process said before it executed itself; nil when this is its first life. A
      #   pid cannot be inherited, so another process that finds the variables is not taken for one that was
      #   executed anew.
      def self.arrive(env = ENV, pid: Process.pid)
        text = env.delete(VARIABLE)
        marker = text && JSON.parse(text)
        return unless marker.is_a?(Hash) && marker["before"].is_a?(Hash)

        restore(env, marker["before"])
        bundler = bundlers_copy
        bundler&.delete(VARIABLE)
        restore(bundler, marker["before"]) if bundler
        marker["said"] if marker["pid"] == pid
      rescue JSON::ParserError
        nil
      end

      # @param env [ENV, Hash{String=>String}]
      # @param before [Hash{String=>String, nil}]
      # @return [void]
      def self.restore(env, before)
        before.each { |name, value| value ? env[name] = value : env.delete(name) }
      end

      # Bundler.with_original_env gives this one to subprocesses; `bundle exec` made it before any of our code ran.
      def self.bundlers_copy
        return unless defined?(::Bundler::ORIGINAL_ENV)

        copy = ::Bundler::ORIGINAL_ENV
        copy unless copy.frozen?
      end
      private_class_method :restore, :bundlers_copy
    end
  end
end
