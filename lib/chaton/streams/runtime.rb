# frozen_string_literal: true

require_relative "../streams"
require_relative "../jobs"
require_relative "../jobs/job_files"
require_relative "finder"

module Chaton
  module Streams
    # Makes a process one that consumes streams.
    module Runtime
      # Loads what consumes: the Rails environment, and the files of `load`; then looks for every class that the
      # configuration names.
      #
      # @param plan [Config::Plan]
      # @param log [Telemetry::Log]
      # @raise [AppLoadError] naming the file
      # @raise [ConfigError] with all classes that are not there, or are no consumers
      def self.prepare(plan, log)
        Jobs::JobFiles.new(plan, log, section: :streams).load
        finder = Finder.new(root: plan.root)
        wrong = plan.streams.routes.filter_map do |route|
          Entry.new(route, finder: finder)
          nil
        rescue ConfigError => e
          e.message
        end
        raise ConfigError, wrong.join("\n") unless wrong.empty?
      end
    end
  end
end
