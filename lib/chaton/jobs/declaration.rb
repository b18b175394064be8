# frozen_string_literal: true

require "json"
require_relative "options"

module Chaton
  module Jobs
    # The common part of all jobs of a class with the same options, computed once and frozen.
    class Declaration
      # Declarations for `set` that are kept; for further options they are computed each time.
      VARIANTS_MAX = 64

      # @return [Class, String] the first argument of client middleware
      attr_reader :klass, :class_name, :queue
      # @return [Hash{String=>Object}] options of all kinds
      attr_reader :options
      # @return [Hash{String=>Object}] options without those for the client only
      attr_reader :public_options
      # @return [String] the document's JSON up to the members that differ from job to job
      attr_reader :head

      # @param options [Hash{String=>Object}] complete, Strings as keys
      def initialize(klass, options)
        @klass = klass
        @class_name = klass.to_s.freeze
        @queue = options["queue"].to_s.freeze
        @options = options.frozen? ? options : options.dup.freeze
        @public_options = @options.except(*Options::CLIENT).freeze
        @plain = (options.keys & Options::EXTRA).empty? && !@queue.empty?
        @after_commit = options["enqueue_after_commit"]
        document = options.except(*Options::EXTRA, *Options::CLIENT)
        @head = JSON.generate(document.merge("queue" => @queue, "class" => @class_name)).chop.freeze
        @variants = {}
      end

      # @return [Boolean] whether its documents need no lock, limit or time, and no check
      def plain? = @plain

      # @return [Boolean] whether a push waits for open transactions
      def after_commit? = @after_commit == true

      # @return [Boolean] whether an open transaction of the store's database stores it; `:own` means that others do not
      #   matter
      def with_transaction? = @after_commit ? true : false

      # @return [Declaration] with these options changed
      def with(changes)
        return self if changes.empty?

        @variants[changes] || remember(changes, Declaration.new(@klass, @options.merge(changes)))
      end

      # The Hash of a job, as middleware gets it.
      def item(args)
        @public_options.merge("queue" => @queue, "class" => @class_name, "args" => args)
      end

      private

      def remember(changes, declaration)
        @variants[changes.dup.freeze] = declaration if @variants.size < VARIANTS_MAX
        declaration
      end
    end
  end
end
