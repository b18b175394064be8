# frozen_string_literal: true

require "json"
require_relative "options"

module Chaton
  module Jobs
    # What is the same in all jobs of a class with the same options: worked out once, frozen.
    class Declaration
      # Declarations of `set` that a class remembers; options beyond that are worked out each time.
      VARIANTS_MAX = 64

      # @return [Class, String] what client middleware gets first
      attr_reader :klass
      # @return [String]
      attr_reader :class_name, :queue
      # @return [Hash{String=>Object}] options of all kinds
      attr_reader :options
      # @return [Hash{String=>Object}] those that are of any interest to others
      attr_reader :public_options
      # @return [String] the document's JSON up to what differs from job to job
      attr_reader :head

      # @param klass [Class, String]
      # @param options [Hash{String=>Object}] complete, Strings as keys
      def initialize(klass, options)
        @klass = klass
        @class_name = klass.to_s.freeze
        @queue = options["queue"].to_s.freeze
        @options = options.frozen? ? options : options.dup.freeze
        @public_options = @options.except(*Options::CLIENT).freeze
        @plain = (options.keys & Options::EXTRA).empty?
        @after_commit = options["enqueue_after_commit"] ? true : false
        document = options.except(*Options::EXTRA, *Options::CLIENT)
        @head = JSON.generate(document.merge("queue" => @queue, "class" => @class_name)).chop.freeze
        @variants = {}
      end

      # @return [Boolean] whether nothing in its documents depends on the single job
      def plain? = @plain

      # @return [Boolean] whether a push inside a transaction waits for its end
      def after_commit? = @after_commit

      # @param changes [Hash{String=>Object}]
      # @return [Declaration] the one with other options
      def with(changes)
        return self if changes.empty?

        @variants[changes] || remember(changes, Declaration.new(@klass, @options.merge(changes)))
      end

      # A job with arguments, as middleware sees it.
      #
      # @param args [Array]
      # @return [Hash{String=>Object}]
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
