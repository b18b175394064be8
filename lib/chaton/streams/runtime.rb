# frozen_string_literal: true

require_relative "../streams"
require_relative "../jobs"
require_relative "../jobs/job_files"
require_relative "finder"

module Chaton
  module Streams
    # Prepares a process that consumes streams.
    module Runtime
      # Loads the Rails environment and the files of `load`, then looks up every class that the configuration names.
      #
      # @raise [AppLoadError] naming the file
      # @raise [ConfigError] with all classes that are missing, or are not consumers
      def self.prepare(plan, log)
        Jobs::JobFiles.new(plan, log, section: :streams).load
        finder = Finder.new(root: plan.root)
        wrong = plan.streams.routes.filter_map do |route|
          ConsumerFactory.new(route, finder: finder)
          nil
        rescue ConfigError => e
          e.message
        end
        raise ConfigError, wrong.join("\n") unless wrong.empty?
      end
    end
  end
end
