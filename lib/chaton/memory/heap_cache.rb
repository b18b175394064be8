# frozen_string_literal: true

require "fileutils"
require "json"

module Chaton
  module Memory
    # The last start's {HeapReading}, kept in a file: variables of the heap are read when a process begins, when nothing is
    # known of the application yet. A reading counts for the same Ruby, the same bundle and the same work only.
    class HeapCache
      # Bytes above which a file is not ours.
      BYTES_MAX = 65_536
      # Arithmetic of the fingerprint stays within.
      WORD = (2**64) - 1
      # A slot of the smallest kind.
      SLOT_BYTES_MIN = 32
      # Of the machine's memory, what a heap may have filled.
      SHARE_MAX = 0.5
      # The machine's memory, where it is not told.
      MACHINE_BYTES = 4 << 30
      # What tells it; the native extension, which does so too, is not loaded when this is read.
      MEMINFO = "/proc/meminfo"
      # Of the content; another one is not read.
      FORMAT = 1

      # What was kept: the reading, and when it was taken.
      Entry = Struct.new(:reading, :taken_at, keyword_init: true)

      # Keeps a reading of this start for the next one. Never raises.
      #
      # @param plan [#root, #workers, #roles, #roles_by_worker]
      # @param reading [Hash{Symbol=>Object}] see {HeapReading.take}
      # @param log [#info, nil] told where nothing can be kept
      # @return [void]
      def self.note(plan, reading, log: nil)
        cache = of(plan)
        return if cache.write(reading)

        log&.info("what is in the heap cannot be kept for the next start; it will run with Ruby's own sizes",
                  reason: cache.problem)
      end

      # @param plan [#root, #workers, #roles, #roles_by_worker]
      # @param env [Hash{String=>String}]
      # @return [HeapCache] of the process that loads the code
      def self.of(plan, env: ENV)
        roles = plan.workers.zero? ? plan.roles : plan.roles_by_worker.flatten
        new(root: plan.root, work: roles.uniq.sort.join("-"), env: env)
      end

      # @return [Integer] bytes
      def self.machine
        kib = File.read(MEMINFO)[/^MemTotal: +(\d+) kB/, 1]
        kib ? kib.to_i * 1024 : MACHINE_BYTES
      rescue SystemCallError
        MACHINE_BYTES
      end

      # @return [String, nil] why the last call came to nothing
      attr_reader :problem

      # @param root [String] the application's directory
      # @param work [String] what the process does, in a file's name
      # @param ruby [String] version
      # @param env [Hash{String=>String}]
      # @param machine [Integer] bytes of the machine's memory
      def initialize(root:, work:, ruby: RUBY_VERSION, env: ENV, machine: HeapCache.machine)
        @machine = machine
        @root = root
        @env = env
        @ruby = ruby
        @name = "heap-#{work.gsub(/[^\w-]+/, "_")}-ruby#{ruby}.json"
      end

      # @return [Entry, nil]
      def read
        @problem = nil
        paths.each do |path|
          entry = entry_of(path)
          return entry if entry
        end
        nil
      end

      # @param reading [Hash{Symbol=>Object}]
      # @return [Boolean] whether it was kept
      def write(reading)
        text = JSON.generate({ format: FORMAT, **identity, taken_at: Time.now.to_i, reading: reading })
        problems = []
        done = paths.any? do |path|
          replace(path, text)
        rescue SystemCallError => e
          problems << e.message.sub(/ @ \S+/, "")
          false
        end
        @problem = done ? nil : problems.join("; ")
        @problem = "there is neither a tmp directory nor a home" if !done && problems.empty?
        done
      end

      # @return [Array<String>] where it may lie, the usual place first
      def paths
        [(File.join(@root, "tmp/cache/chaton") if File.directory?(File.join(@root, "tmp"))), personal]
          .compact.map { |folder| File.join(folder, @name) }
      end

      private

      # Where an application has no directory for such things, or none that can be written to.
      def personal
        home = @env["XDG_CACHE_HOME"].to_s
        home = File.join(@env["HOME"], ".cache") if home.empty? && @env["HOME"].to_s.start_with?("/")
        File.join(home, "chaton", format("%016x", fingerprint(@root))) if home.start_with?("/")
      end

      def identity = { ruby: @ruby, platform: RUBY_PLATFORM, bundle: bundle }

      # The bundle's contents; another set of gems is another heap.
      def bundle
        gemfile = @env["BUNDLE_GEMFILE"].to_s
        gemfile = File.join(@root, "Gemfile") if gemfile.empty?
        lock = File.basename(gemfile) == "gems.rb" ? gemfile.sub(/\.rb\z/, ".locked") : "#{gemfile}.lock"
        format("%016x", fingerprint(File.binread(File.expand_path(lock, @root))))
      rescue SystemCallError
        "none"
      end

      # FNV-1a over words of eight bytes. Ruby's digests are gems, and the application's bundle may want another
      # version of them than the one that is loaded by then.
      def fingerprint(text)
        padded = text.b.ljust((text.bytesize | 7) + 1, "\0")
        padded.unpack("Q<*").inject(0xcbf29ce484222325) { |hash, word| ((hash ^ word) * 0x100000001b3) & WORD }
      end

      def entry_of(path)
        return unless File.file?(path)
        return reject("#{path} is too large to be ours") if File.size(path) > BYTES_MAX

        kept = JSON.parse(File.read(path), symbolize_names: true)
        return reject("#{path} holds no reading") unless kept.is_a?(Hash) && kept[:format] == FORMAT
        return reject("the last reading is of another Ruby or another bundle") unless kept >= identity

        entry = Entry.new(reading: kept[:reading], taken_at: kept[:taken_at])
        sound?(entry) ? entry : reject("#{path} holds figures that cannot be true")
      rescue SystemCallError, JSON::ParserError, EncodingError => e
        reject("#{path} cannot be read: #{e.class}")
      end

      def reject(reason)
        @problem = reason
        nil
      end

      # It may have been written by hand, and decides how much memory we take.
      def sound?(entry)
        reading = entry.reading
        return false unless reading.is_a?(Hash) && entry.taken_at.is_a?(Integer)

        figures = reading.values_at(:live_slots, :old_objects)
        figures.all? { |figure| count?(figure) } && pools?(reading[:pools])
      end

      # All of them together must have had room in this machine.
      def pools?(pools)
        pools.is_a?(Array) && pools.size.between?(1, 16) &&
          pools.all? { |pool| pool.is_a?(Array) && pool.size == 2 && pool.all? { |figure| count?(figure) } } &&
          pools.sum { |size, live| [size, SLOT_BYTES_MIN].max * live } <= @machine * SHARE_MAX
      end

      def count?(figure) = figure.is_a?(Integer) && figure.between?(0, @machine / SLOT_BYTES_MIN)

      # A reader finds the old file or the new one, never half of it.
      def replace(path, text)
        FileUtils.mkdir_p(File.dirname(path))
        fresh = "#{path}.#{Process.pid}"
        File.open(fresh, File::WRONLY | File::CREAT | File::TRUNC | File::NOFOLLOW, 0o600) { |file| file.write(text) }
        File.rename(fresh, path)
        true
      rescue SystemCallError
        discard(fresh)
        raise
      end

      def discard(path)
        File.unlink(path) if path
      rescue SystemCallError
        nil
      end
    end
  end
end
