# frozen_string_literal: true

require_relative "options/server"
require_relative "options/processes"
require_relative "options/sections"
require_relative "options/web"
require_relative "options/jobs"
require_relative "options/streams"
require_relative "options/topics"
require_relative "options/fixed"

module Chaton
  module Config
    # All options.
    module Options
      # Chapters of `--help` and of the manual, in their order.
      GROUPS = {
        server: "What is served, and where",
        processes: "Processes",
        threads: "Threads",
        queue: "The queue of requests",
        limits: "Limits",
        timeouts: "Timeouts",
        connections: "Connections",
        files: "Static files",
        compression: "Compression",
        health: "Health, restarts and stopping",
        memory: "Memory and collection",
        jobs: "Background jobs",
        store: "The job store",
        streams: "Streams",
        topic: "Topics",
        log: "The log of records",
        live: "Event streams",
        output: "Output and control",
        admin: "The admin endpoint",
        traces: "Traces"
      }.freeze

      # Each definition, by chapter.
      ALL = [*SERVER, *PROCESSES, *OUTPUT, *WEB, *JOBS, *STREAMS, *TOPICS, *LIVE,
             *MEMORY, *ADMIN, *TRACES].sort_by.with_index do |option, index|
        [GROUPS.keys.index(option.group), index]
      end.freeze
      # Each in each of its scopes.
      EVERYWHERE = ALL.flat_map(&:everywhere).freeze
      # The same by name.
      BY_NAME = EVERYWHERE.to_h { |option| [option.name, option] }.freeze
      # All values by name: of options, and those that are fixed.
      VALUES = [*EVERYWHERE, *FIXED].to_h { |option| [option.name, option] }.freeze
      private_constant :VALUES

      def self.[](name) = VALUES.fetch(name)

      # @param scope [Symbol] :top, :web, :queue, :jobs, :streams, :topic, :live, :memory, :admin, :traces or :cli
      def self.in(scope) = EVERYWHERE.select { |option| option.scope == scope }

      # @return [Array<Option>] those with a flag
      def self.on_command_line = ALL.reject { |option| option.flags.empty? }

      # @return [Array<Symbol>] names of their options and fixed values
      def self.names(*scopes) = VALUES.each_value.select { |option| scopes.include?(option.scope) }.map(&:name)

      # @param path [Array<Symbol>] of a part of the engine's document
      # @param values [#[]] by name
      # @return [Hash{Symbol=>Object}] what options and fixed values put there
      def self.document(*path, values)
        VALUES.each_value.select { |option| option.engine == path }
          .to_h { |option| [option.written, values[option.name]] }
      end

      # @param scope [Symbol] where; a value that is fixed in another one is only found if this one has none
      # @return [Option, nil] the fixed value that was an option of this name
      def self.fixed(name, scope)
        found = FIXED.select { |option| option.names.include?(name) }
        found.find { |option| option.scope == scope } || found.find { |option| option.name == name }
      end
    end
  end
end
