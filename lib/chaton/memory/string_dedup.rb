# frozen_string_literal: true

module Chaton
  module Memory
    # Replaces equal frozen Strings made during boot by one of them, in Arrays, Hash values and instance variables.
    # `docs/decisions/016-what-settle-does.md` says when this is worthwhile.
    #
    # No code of the application is called: all methods are those of Ruby's own classes, even if overridden. Strings
    # that code may tell apart by identity stay: values of constants and keys of identity maps. Frozen containers and
    # local variables cannot be rewritten.
    class StringDedup
      # Limit of processor time.
      TIME_S_MAX = 1.0
      # Duplicates must be this share of all objects to be worth the second walk, which rewrites.
      SHARE_MIN = 0.005
      # Objects between two checks of the time.
      STRIDE = 512
      # Longer Strings have memory outside of their slot.
      EMBEDDED_BYTES_MAX = 23
      SLOT_BYTES = GC::INTERNAL_CONSTANTS[:RVALUE_SIZE] || GC::INTERNAL_CONSTANTS[:BASE_SLOT_SIZE] || 40

      # The number of duplicates and their bytes, and how many of them were replaced somewhere.
      Result = Struct.new(:found, :bytes, :merged, :note, keyword_init: true)

      # The time limit is reached.
      class OutOfTime < StandardError; end
      private_constant :OutOfTime

      # Ruby's own methods, which objects cannot replace.
      module CoreMethods
        CLASS = Kernel.instance_method(:class)
        FROZEN = Kernel.instance_method(:frozen?)
        VARIABLES = Kernel.instance_method(:instance_variables)
        READ = Kernel.instance_method(:instance_variable_get)
        WRITE = Kernel.instance_method(:instance_variable_set)
        SCAN = String.instance_method(:valid_encoding?)
        INTERN = String.instance_method(:-@)
        ANY = Array.instance_method(:any?)
        MAP = Array.instance_method(:map!)
        BY_IDENTITY = Hash.instance_method(:compare_by_identity?)
        ANY_VALUE = Hash.instance_method(:any?)
        MAP_VALUES = Hash.instance_method(:transform_values!)
        EACH_KEY = Hash.instance_method(:each_key)
        WEAK_KEYS = ObjectSpace::WeakMap.instance_method(:keys)
        CONSTANTS = Module.instance_method(:constants)
        AUTOLOAD = Module.instance_method(:autoload?)
        DEFINED = Module.instance_method(:const_defined?)
        CONSTANT = Module.instance_method(:const_get)
      end
      private_constant :CoreMethods

      # @param time_s [Float] seconds of processor time all of it may take
      # @param share_min [Float] see {SHARE_MIN}
      def initialize(time_s: TIME_S_MAX, share_min: SHARE_MIN)
        @time_s = time_s
        @share_min = share_min
        @duplicates = {}.compare_by_identity
        @merged = {}.compare_by_identity
        @bytes = 0
        @steps = 0
      end

      # Never raises.
      #
      # @return [Result]
      def merge
        @deadline_s = now_s + @time_s
        find
        note = reason_not_to
        rewrite unless note
        result(note)
      rescue OutOfTime
        result("stopped after #{@time_s} s of processor time")
      rescue StandardError => e
        result("stopped: #{e.class}")
      ensure
        @duplicates.clear
        @merged.clear
      end

      private

      # Scans every String's encoding too, because Ruby caches the result in the String: at first use in a worker that
      # would copy a shared page.
      def find
        ObjectSpace.each_object(String) do |string|
          tick
          CoreMethods::SCAN.bind_call(string)
          next unless CoreMethods::FROZEN.bind_call(string)

          interned = CoreMethods::INTERN.bind_call(string)
          next if interned.equal?(string) || !CoreMethods::CLASS.bind_call(string).equal?(String)

          @duplicates[string] = interned
          @bytes += size(string)
        end
      end

      def size(string) = SLOT_BYTES + (string.bytesize > EMBEDDED_BYTES_MAX ? string.bytesize + 1 : 0)

      def reason_not_to
        share = @duplicates.size.fdiv([GC.stat(:heap_live_slots), 1].max)
        return "less than #{(@share_min * 100).round(2)} % of all objects" if share < @share_min

        # A running thread could change the containers meanwhile.
        others = Thread.list - [Thread.current]
        "threads are running" unless others.all?(&:stop?)
      end

      def rewrite
        forget_named
        forget_identities
        rewrite_arrays
        rewrite_hashes
        rewrite_variables
      end

      def forget_named
        warned = Warning[:deprecated]
        # Reading a deprecated constant would warn.
        Warning[:deprecated] = false
        ObjectSpace.each_object(Module) do |holder|
          CoreMethods::CONSTANTS.bind_call(holder, false).each do |name|
            tick
            @duplicates.delete(CoreMethods::CONSTANT.bind_call(holder, name, false)) if there?(holder, name)
          end
        end
      ensure
        Warning[:deprecated] = warned
      end

      # False where reading the constant would autoload a file or call const_missing.
      def there?(holder, name)
        !CoreMethods::AUTOLOAD.bind_call(holder, name, false) && CoreMethods::DEFINED.bind_call(holder, name, false)
      end

      def forget_identities
        ObjectSpace.each_object(Hash) do |hash|
          tick
          next if @duplicates.equal?(hash) || !CoreMethods::BY_IDENTITY.bind_call(hash)

          CoreMethods::EACH_KEY.bind_call(hash) { |key| @duplicates.delete(key) }
        end
        ObjectSpace.each_object(ObjectSpace::WeakMap) do |map|
          CoreMethods::WEAK_KEYS.bind_call(map).each { |key| @duplicates.delete(key) }
        end
      end

      # Ruby compares $LOADED_FEATURES and $LOAD_PATH with copies by identity, so both stay.
      def rewrite_arrays
        ObjectSpace.each_object(Array) do |array|
          tick
          next if CoreMethods::FROZEN.bind_call(array) || $LOADED_FEATURES.equal?(array) || $LOAD_PATH.equal?(array)

          next unless CoreMethods::ANY.bind_call(array) { |item| @duplicates.key?(item) }

          CoreMethods::MAP.bind_call(array) { |item| interned(item) }
        end
      end

      def rewrite_hashes
        ObjectSpace.each_object(Hash) do |hash|
          tick
          next if @duplicates.equal?(hash) || @merged.equal?(hash) || CoreMethods::FROZEN.bind_call(hash)
          next unless CoreMethods::ANY_VALUE.bind_call(hash) { |_, value| @duplicates.key?(value) }

          CoreMethods::MAP_VALUES.bind_call(hash) { |value| interned(value) }
        end
      end

      def rewrite_variables
        ObjectSpace.each_object do |object|
          tick
          next if equal?(object) || CoreMethods::FROZEN.bind_call(object)

          CoreMethods::VARIABLES.bind_call(object).each do |name|
            value = CoreMethods::READ.bind_call(object, name)
            CoreMethods::WRITE.bind_call(object, name, interned(value)) if @duplicates.key?(value)
          end
        end
      end

      # The String that replaces a duplicate; other values as they are.
      def interned(value)
        interned = @duplicates[value]
        return value unless interned

        @merged[value] = true
        interned
      end

      def result(note) = Result.new(found: @duplicates.size, bytes: @bytes, merged: @merged.size, note: note)

      def tick
        @steps += 1
        raise OutOfTime if (@steps % STRIDE).zero? && now_s > @deadline_s
      end

      # Of this thread, so that a busy machine does not matter.
      def now_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    end
  end
end
