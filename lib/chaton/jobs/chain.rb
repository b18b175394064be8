# frozen_string_literal: true

module Chaton
  module Jobs
    # Middleware in its order. The order is changed while a process boots; {#invoke} makes a new instance of
    # each class for every job, as middleware written for Sidekiq expects.
    class Chain
      include Enumerable

      # One middleware: its class and what `new` gets.
      Entry = Struct.new(:klass, :args) do
        # @return [#call]
        def instance
          klass.new(*args)
        end
      end

      def initialize
        @entries = [].freeze
      end

      # @yieldparam entry [Entry]
      def each(&block) = @entries.each(&block)

      # @return [Boolean]
      def empty? = @entries.empty?

      # Innermost.
      def add(klass, *args)
        change { |entries| without(entries, klass) << Entry.new(klass, args) }
      end
      alias use add

      # Outermost.
      def prepend(klass, *args)
        change { |entries| without(entries, klass).unshift(Entry.new(klass, args)) }
      end

      # @param old [Class] where it is not there: outermost
      def insert_before(old, klass, *args)
        insert(klass, args) { |entries| entries.index { |entry| entry.klass == old } || 0 }
      end

      # @param old [Class] where it is not there: innermost
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
      # @return [Object] what the outermost answered
      def invoke(*args, &block)
        return yield if @entries.empty?

        step(@entries.map(&:instance), 0, args, block)
      end

      private

      def step(instances, index, args, last)
        return last.call if index == instances.size

        instances[index].call(*args) { step(instances, index + 1, args, last) }
      end

      # A job that runs meanwhile keeps the order it began with.
      def change
        @entries = (yield @entries.dup).freeze
        self
      end

      def without(entries, klass) = entries.reject { |entry| entry.klass == klass }

      # One that is there already moves with the arguments it has, as in Sidekiq.
      def insert(klass, args)
        change do |entries|
          entry = entries.find { |one| one.klass == klass } || Entry.new(klass, args)
          rest = without(entries, klass)
          rest.insert(yield(rest), entry)
        end
      end
    end
  end
end
