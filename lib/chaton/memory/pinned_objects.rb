# frozen_string_literal: true

module Chaton
  module Memory
    # Pins objects during compaction. An extension may keep the address of an object without marking it as pinned; if
    # compaction moves the object, the extension is left with the address of another one. Ruby does not move objects
    # that are on the stack of a thread, so these objects are put there.
    #
    # The sqlite3 gem passes to SQLite the address of a database (before 1.7.1, with a busy handler) and of functions,
    # collations, aggregates, trace and authorizer (sparklemotion/sqlite3-ruby 466 and 723).
    module PinnedObjects
      # Objects pinned at most; each one takes a call on the stack.
      COUNT_MAX = 2_000

      module_function

      # @return [Boolean] whether it was called; false if there are too many objects
      def pin_during(compaction)
        objects = list
        return false if objects.size > COUNT_MAX

        pin_from(0, objects, compaction)
        true
      end

      # @return [Array<Object>] open databases, the objects they refer to, and the elements of their Arrays and Hashes
      def list
        return [] if Object.autoload?(:SQLite3) || !defined?(::SQLite3::Database)

        # Not all of these are in variables that Ruby code can read.
        require "objspace"
        databases = ObjectSpace.each_object(::SQLite3::Database).reject(&:closed?)
        owned = databases.flat_map { |database| parts(database) }
        held = owned.flat_map { |object| [Array, Hash].include?(object.class) ? parts(object) : [] }
        databases + owned + held
      end

      def parts(object) = ObjectSpace.reachable_objects_from(object) || []

      # Each call holds one object in a local variable. No block may capture it, or it would move to the heap.
      def pin_from(index, objects, compaction)
        return compaction.call if index == objects.size

        object = objects[index]
        [pin_from(index + 1, objects, compaction), object].first
      end
      private_class_method :parts, :pin_from
    end
  end
end
