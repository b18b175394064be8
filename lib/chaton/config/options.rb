# frozen_string_literal: true

require_relative "options/server"
require_relative "options/processes"
require_relative "options/output"
require_relative "options/web"
require_relative "options/jobs"
require_relative "options/streams"
require_relative "options/topics"
require_relative "options/live"
require_relative "options/memory"
require_relative "options/admin"
require_relative "options/traces"

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

      # By chapter.
      ALL = [*SERVER, *PROCESSES, *OUTPUT, *WEB, *JOBS, *STREAMS, *TOPICS, *LIVE,
             *MEMORY, *ADMIN, *TRACES].sort_by.with_index do |option, index|
        [GROUPS.keys.index(option.group), index]
      end.freeze
      # The same by name.
      BY_NAME = ALL.to_h { |option| [option.name, option] }.freeze

      # @return [Option]
      def self.[](name) = BY_NAME.fetch(name)

      # @param scope [Symbol] :top, :web, :queue, :jobs, :streams, :topic, :live, :memory, :admin, :traces or :cli
      # @return [Array<Option>]
      def self.in(scope) = ALL.select { |option| option.scope == scope }

      # @return [Array<Option>] those with a flag
      def self.on_command_line = ALL.reject { |option| option.flags.empty? }

      # @return [Array<Symbol>] fields of a plan's `web`
      def self.of_web = self.in(:web).reject(&:outside).map(&:name)

      # @return [Array<Symbol>] fields of a plan that are options of their own name
      def self.of_plan = (self.in(:top) + self.in(:queue) + self.in(:web).select(&:outside)).map(&:name)
    end
  end
end
