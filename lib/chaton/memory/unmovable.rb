# frozen_string_literal: true

module Chaton
  module Memory
    # Objects that an extension knows by their address and tells nobody, so that compaction would leave it with the
    # address of something else. Ruby moves nothing that stands on the stack of a thread: there they are held.
    #
    # The sqlite3 gem gives SQLite the address of a database (before 1.7.1, where it has a busy handler) and of what
    # SQLite calls: functions, collations, aggregates, trace, authorizer (sparklemotion/sqlite3-ruby 466 and 723).
    module Unmovable
      # So many are held at most; each takes a call of the stack.
      COUNT_MAX = 2_000

      module_function

      # @param work [#call] what compacts
      # @return [Boolean] whether it was called; not where there are too many
      def hold(work)
        objects = list
        return false if objects.size > COUNT_MAX

        hold_each(objects, 0, work)
        true
      end

      # @return [Array<Object>] open databases, what they refer to, and what stands in Arrays and Hashes of theirs
      def list
        return [] if Object.autoload?(:SQLite3) || !defined?(::SQLite3::Database)

        # Not all of it is in variables that Ruby code can read.
        require "objspace"
        databases = ObjectSpace.each_object(::SQLite3::Database).reject(&:closed?)
        owned = databases.flat_map { |database| parts(database) }
        held = owned.flat_map { |object| [Array, Hash].include?(object.class) ? parts(object) : [] }
        databases + owned + held
      end

      def parts(object) = ObjectSpace.reachable_objects_from(object) || []

      # One local variable a call. No block may see it: what a block sees is moved off the stack.
      def hold_each(objects, index, work)
        return work.call if index == objects.size

        object = objects[index]
        [hold_each(objects, index + 1, work), object].first
      end
      private_class_method :parts, :hold_each
    end
  end
end
