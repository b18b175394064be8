# frozen_string_literal: true

require_relative "declaration"

module Chaton
  module Jobs
    # The document of a cron job. The engine enqueues the jobs itself.
    module CronEntry
      # @param job [Class, String] a String when the class is not loaded yet
      # @param queue [String, Symbol, nil] instead of the class's
      # @return [Array(String, String)] the queue, and the document's JSON without jid, times and the closing brace
      # @raise [ArgumentError] for arguments that do not come back equal from JSON
      def self.head(job, args: [], queue: nil)
        args = Array(args)
        Arguments.check(job.to_s, args)
        item = declaration(job, queue).item(args)
        [item["queue"], JSON.generate(item.except(*Options::EXTRA), max_nesting: false).chop]
      end

      def self.declaration(job, queue)
        job = loaded(job)
        options = Options.of(job)
        Declaration.new(job, queue ? options.merge("queue" => queue.to_s) : options)
      end
      private_class_method :declaration

      # A class that cannot be loaded here keeps its name; its jobs fail where they run.
      def self.loaded(job)
        job.is_a?(String) ? JobClass.constant(job) : job
      rescue NameError, LoadError
        job
      end
      private_class_method :loaded
    end
  end
end
