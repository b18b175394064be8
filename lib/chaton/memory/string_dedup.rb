# frozen_string_literal: true

module Chaton
  module Memory
    # Frozen Strings that boot made more than once: of each text one stays, and what holds another is made to hold that
    # one. `docs/decisions/016-what-settle-does.md` says when this is worth while.
    #
    # No code of the application is called: every method here is that of Ruby's own class, whatever a subclass or an
    # object has put in its place. What somebody may tell apart by identity stays as it is: a String that a constant
    # names, and a key of a map by identity. Frozen containers cannot be rewritten, nor can local variables.
    class StringDedup
      # Processor time all of it may take.
      TIME_S_MAX = 1.0
      # Twins must be this share of all objects to be worth the second walk, which rewrites.
      SHARE_MIN = 0.005
      # Objects between two looks at the clock.
      STRIDE = 512
      # Bytes of a String that lie in its slot; longer ones have memory of their own.
      EMBEDDED_BYTES_MAX = 23
      # Bytes of a slot, without what lies outside of it.
      SLOT_BYTES = GC::INTERNAL_CONSTANTS[:RVALUE_SIZE] || GC::INTERNAL_CONSTANTS[:BASE_SLOT_SIZE] || 40

      # `found` and `bytes` are what all twins come to; `merged` is how many of them something let go of.
      Result = Struct.new(:found, :bytes, :merged, :note, keyword_init: true)

      # The walk has taken too long.
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
        @twins = {}.compare_by_identity
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
        @twins.clear
        @merged.clear
      end

      private

      # Every String is looked at for its encoding's sake as well: Ruby notes in the String what it finds, at its first
      # use otherwise, which in a worker would copy a shared page.
      def find
        ObjectSpace.each_object(String) do |string|
          tick
          CoreMethods::SCAN.bind_call(string)
          next unless CoreMethods::FROZEN.bind_call(string)

          interned = CoreMethods::INTERN.bind_call(string)
          next if interned.equal?(string) || !CoreMethods::CLASS.bind_call(string).equal?(String)

          @twins[string] = interned
          @bytes += size(string)
        end
      end

      def size(string) = SLOT_BYTES + (string.bytesize > EMBEDDED_BYTES_MAX ? string.bytesize + 1 : 0)

      def reason_not_to
        share = @twins.size.fdiv([GC.stat(:heap_live_slots), 1].max)
        return "less than #{(@share_min * 100).round(2)} % of all objects" if share < @share_min

        # One that runs could put something else where we are about to write.
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
        # Nobody uses the constants; reading one that is deprecated would say so.
        Warning[:deprecated] = false
        ObjectSpace.each_object(Module) do |holder|
          CoreMethods::CONSTANTS.bind_call(holder, false).each do |name|
            tick
            @twins.delete(CoreMethods::CONSTANT.bind_call(holder, name, false)) if there?(holder, name)
          end
        end
      ensure
        Warning[:deprecated] = warned
      end

      # Not where reading it would load a file, or call const_missing because the file did not define it.
      def there?(holder, name)
        !CoreMethods::AUTOLOAD.bind_call(holder, name, false) && CoreMethods::DEFINED.bind_call(holder, name, false)
      end

      def forget_identities
        ObjectSpace.each_object(Hash) do |hash|
          tick
          next if @twins.equal?(hash) || !CoreMethods::BY_IDENTITY.bind_call(hash)

          CoreMethods::EACH_KEY.bind_call(hash) { |key| @twins.delete(key) }
        end
        ObjectSpace.each_object(ObjectSpace::WeakMap) do |map|
          CoreMethods::WEAK_KEYS.bind_call(map).each { |key| @twins.delete(key) }
        end
      end

      # What Ruby has loaded is compared with a copy by identity.
      def rewrite_arrays
        ObjectSpace.each_object(Array) do |array|
          tick
          next if CoreMethods::FROZEN.bind_call(array) || $LOADED_FEATURES.equal?(array) || $LOAD_PATH.equal?(array)

          next unless CoreMethods::ANY.bind_call(array) { |item| @twins.key?(item) }
          CoreMethods::MAP.bind_call(array) { |item|
            twin(item)
          }
        end
      end

      def rewrite_hashes
        ObjectSpace.each_object(Hash) do |hash|
          tick
          next if @twins.equal?(hash) || @merged.equal?(hash) || CoreMethods::FROZEN.bind_call(hash)
          next unless CoreMethods::ANY_VALUE.bind_call(hash) { |_, value| @twins.key?(value) }

          CoreMethods::MAP_VALUES.bind_call(hash) { |value| twin(value) }
        end
      end

      def rewrite_variables
        ObjectSpace.each_object do |object|
          tick
          next if equal?(object) || CoreMethods::FROZEN.bind_call(object)

          CoreMethods::VARIABLES.bind_call(object).each do |name|
            value = CoreMethods::READ.bind_call(object, name)
            CoreMethods::WRITE.bind_call(object, name, twin(value)) if @twins.key?(value)
          end
        end
      end

      # The one that stays; anything else as it is.
      def twin(value)
        interned = @twins[value]
        return value unless interned

        @merged[value] = true
        interned
      end

      def result(note) = Result.new(found: @twins.size, bytes: @bytes, merged: @merged.size, note: note)

      def tick
        @steps += 1
        raise OutOfTime if (@steps % STRIDE).zero? && now_s > @deadline_s
      end

      # Other processes of a busy machine take none of it.
      def now_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    end
  end
end
