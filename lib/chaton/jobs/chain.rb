# frozen_string_literal: true

module Chaton
  module Jobs
    # A chain of middleware. It is changed while a process boots. {#invoke} makes a new instance of each class for
    # every job, as middleware written for Sidekiq expects.
    class Chain
      include Enumerable

      # One middleware: its class and the arguments of `new`.
      Middleware = Struct.new(:klass, :args) do
        # @return [#call]
        def instance
          klass.new(*args)
        end
      end

      def initialize
        @entries = [].freeze
      end

      # @yieldparam entry [Middleware]
      def each(&block) = @entries.each(&block)

      def empty? = @entries.empty?

      # Adds a middleware at the end: innermost.
      def add(klass, *args)
        change { |entries| without(entries, klass) << Middleware.new(klass, args) }
      end
      alias use add

      # Adds a middleware at the beginning: outermost.
      def prepend(klass, *args)
        change { |entries| without(entries, klass).unshift(Middleware.new(klass, args)) }
      end

      # @param old [Class] if it is not in the chain, the new one is outermost
      def insert_before(old, klass, *args)
        insert(klass, args) { |entries| entries.index { |entry| entry.klass == old } || 0 }
      end

      # @param old [Class] if it is not in the chain, the new one is innermost
      def insert_after(old, klass, *args)
        insert(klass, args) { |entries| (entries.index { |entry| entry.klass == old } || (entries.size - 1)) + 1 }
      end

      # @return [Chain] self
      def remove(klass) = change { |entries| without(entries, klass) }

      # @return [Chain] self
      def clear = change { [] }

      # @return [Boolean]
      def exists?(klass) = any? { |entry| entry.klass == klass }
      alias include? exists?

      # Runs the block inside all middleware.
      #
      # @return [Object] the result of the outermost one
      # @private
      def invoke(*args, &block)
        return yield if @entries.empty?

        step(@entries.map(&:instance), 0, args, block)
      end

      private

      def step(instances, index, args, last)
        return last.call if index == instances.size

        instances[index].call(*args) { step(instances, index + 1, args, last) }
      end

      # The array is replaced, so that a job that runs meanwhile keeps its order.
      def change
        @entries = (yield @entries.dup).freeze
        self
      end

      def without(entries, klass) = entries.reject { |entry| entry.klass == klass }

      # As in Sidekiq, a middleware that is in the chain moves and keeps its arguments.
      def insert(klass, args)
        change do |entries|
          entry = entries.find { |one| one.klass == klass } || Middleware.new(klass, args)
          rest = without(entries, klass)
          rest.insert(yield(rest), entry)
        end
      end
    end
  end
end
