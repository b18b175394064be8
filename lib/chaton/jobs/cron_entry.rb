# frozen_string_literal: true

require_relative "declaration"

module Chaton
  module Jobs
    # A job that the clock enqueues. The engine does it, and has to know its document.
    module CronEntry
      # @param job [Class, String] String where the class is not loaded yet
      # @param args [Array]
      # @param queue [String, Symbol, nil] instead of the class's
      # @return [Array(String, String)] queue, and the document's JSON but for its number, its times and the
      #   brace that ends it
      # @raise [ArgumentError] for arguments that JSON would not bring back
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

      # A class that this process has decides; one it cannot load is run, and failed, where its job is.
      def self.loaded(job)
        job.is_a?(String) ? ClassEntry.constant(job) : job
      rescue NameError, LoadError
        job
      end
      private_class_method :loaded
    end
  end
end
