# frozen_string_literal: true

require "etc"
require "rbconfig"
require_relative "library"

module Chaton
  module Memory
    # Chooses the allocator of a process and its environment variables. Measured: with 25 threads and large payloads
    # jemalloc with one arena does a fifth more work per CPU second than the C library, in half of its memory, and
    # its memory stays flat. As Ruby code runs under one lock, more arenas gain little.
    class Allocator
      # A process that forks has no background thread, which would not survive the fork; workers switch theirs on.
      JEMALLOC = "narenas:1,background_thread:false,dirty_decay_ms:5000,muzzy_decay_ms:5000"
      # Returns pages to the system at once. Measured with 2.0 and 25 threads that allocate up to 2 MB: half of the peak
      # and a quarter of the memory that stays, for a third more CPU. The first pair is for 2.1 and later, which ignore
      # or translate the older names.
      MIMALLOC = { "MIMALLOC_PURGE_DELAY" => "0", "MIMALLOC_ABANDONED_PAGE_PURGE" => "1",
                   "MIMALLOC_RESET_DELAY" => "0", "MIMALLOC_ABANDONED_PAGE_DECOMMIT" => "1" }.freeze
      # glibc's arenas: enough for two threads that run at a time.
      ARENAS = "2"
      # Libraries with these names replace malloc.
      REPLACEMENTS = /lib(?:chaton_)?(jemalloc|mimalloc|tcmalloc|snmalloc|hoard|scudo|rpmalloc)/

      # The chosen allocator. `env` holds the variables to set, without LD_PRELOAD, to which `path` is prepended;
      # `missed` is true if the configuration asks for another one.
      Choice = Struct.new(:name, :version, :path, :env, :shape, :why, :missed, keyword_init: true) do
        def to_s
          "allocator: #{[name, version].compact.join(" ")}#{" (#{path})" if path}, #{shape}; chosen because #{why}"
        end
      end

      # @return [Array<String>] names of allocators that are mapped into this process
      def self.mapped
        File.binread("/proc/self/maps").scan(%r{/[^/\n]*$}).grep(REPLACEMENTS).map { |line| line[REPLACEMENTS, 1] }.uniq
      rescue SystemCallError
        []
      end

      # @return [Symbol] :glibc, :musl, or :other
      def self.c_library
        return :other unless RbConfig::CONFIG["host_os"].include?("linux")

        Etc.confstr(Etc::CS_GNU_LIBC_VERSION) ? :glibc : :musl
      rescue NameError, SystemCallError
        :musl
      end

      # @param wanted [Symbol] :auto, :jemalloc, :mimalloc or :system
      # @param env [Hash{String=>String}] as the user set it
      # @param mapped [Array<String>] see {mapped}
      # @param c_library [Symbol] see {c_library}
      # @param trial [#call] variables → an error text, or nil
      def initialize(wanted, env:, mapped: Allocator.mapped, c_library: Allocator.c_library,
                     trial: PreloadCheck.method(:failure))
        @wanted = wanted
        @env = env
        @mapped = mapped
        @c_library = c_library
        @trial = trial
        @rejected = []
      end

      def choice
        present || preloaded || of_the_system
      end

      private

      # An allocator that the user has preloaded, or that Ruby is linked with.
      def present
        named = @env["LD_PRELOAD"].to_s[REPLACEMENTS, 1]
        name = named || @mapped.first
        return unless name

        Choice.new(name: name, env: name == "jemalloc" ? jemalloc_settings : {},
                   shape: name == "jemalloc" ? jemalloc_shape : "as it is",
                   why: named ? "LD_PRELOAD names it already" : "this Ruby has it already",
                   missed: ![:auto, name.to_sym].include?(@wanted))
      end

      # The first library that can be loaded.
      def preloaded
        return if @wanted == :system || @c_library == :other

        Library.all(wanted_name, env: @env).each do |library|
          variables = settings_of(library)
          reason = library.unfit || @trial.call({ "LD_PRELOAD" => library.path, **variables })
          return of_library(library, variables) unless reason

          @rejected << "#{library.path} cannot be used: #{reason}"
        end
        nil
      end

      def of_library(library, variables)
        shape = library.name == "jemalloc" ? jemalloc_shape : "giving pages back at once"
        Choice.new(name: library.name, version: library.version, path: library.path, env: variables, shape: shape,
                   why: reason(library), missed: false)
      end

      def reason(library)
        return "the configuration asks for it" unless @wanted == :auto
        return "it came with Chaton, and the system has no usable jemalloc" if library.bundled?

        "it is installed, and it is the fastest and smallest under one Ruby lock"
      end

      def of_the_system
        name = { glibc: "glibc", musl: "musl" }.fetch(@c_library, "the system's")
        arenas = @c_library == :glibc && !arenas_chosen?
        shape = @c_library == :glibc ? arenas_shape : "as it is"
        Choice.new(name: name, env: arenas ? { "MALLOC_ARENA_MAX" => ARENAS } : {}, shape: shape, why: why_the_system,
                   missed: %i[jemalloc mimalloc].include?(@wanted))
      end

      def why_the_system
        return "the configuration asks for it" if @wanted == :system
        return "libraries are preloaded on Linux only" if @c_library == :other

        place = @env[Library::VARIABLE] ? "in #{@env[Library::VARIABLE]}" : "where the dynamic linker looks"
        ["there is no usable #{wanted_name} #{place}", *@rejected].join("; ")
      end

      def wanted_name = @wanted == :mimalloc ? "mimalloc" : "jemalloc"

      def settings_of(library)
        library.name == "jemalloc" ? jemalloc_settings : MIMALLOC.reject { |name, _| @env[name] }
      end

      def jemalloc_settings
        @env["MALLOC_CONF"] ? {} : { "MALLOC_CONF" => JEMALLOC }
      end

      def jemalloc_shape = @env["MALLOC_CONF"] ? "with your MALLOC_CONF" : "one arena"

      def arenas_chosen? = @env["MALLOC_ARENA_MAX"] || @env["GLIBC_TUNABLES"].to_s.include?("malloc.arena_max")

      def arenas_shape = arenas_chosen? ? "with your number of arenas" : "#{ARENAS} arenas"
    end

    # Checks that a library can be preloaded by starting a Ruby with it. The library's header is not enough: it may need
    # a newer C library, and then the dynamic linker ends the process.
    module PreloadCheck
      # The user's settings are left out.
      WITHOUT = { "RUBYOPT" => nil, "RUBYLIB" => nil }.freeze
      # The linker's messages, when it ignores the library, contain this.
      IGNORED = "ld.so"
      # Bound of the output that is read.
      OUTPUT_BYTES_MAX = 65_536

      # @param variables [Hash{String=>String}] variables of the process
      # @return [String, nil] an error text, nil if it works
      def self.failure(variables, ruby: RbConfig.ruby)
        output, input = IO.pipe
        streams = { in: File::NULL, out: File::NULL, err: input }
        pid = Process.spawn({ **WITHOUT, **variables }, ruby, "--version", close_others: true, **streams)
        input.close
        text = output.read(OUTPUT_BYTES_MAX).to_s.scrub
        status = Process.wait2(pid).last
        return if status.success? && !text.include?(IGNORED)

        text.lines.first&.chomp || "a Ruby with it ended with #{status.termsig ? "signal #{status.termsig}" : status}"
      rescue SystemCallError => e
        "it could not be tried: #{e.message}"
      ensure
        [output, input].compact.each(&:close)
      end
    end
  end
end
