# frozen_string_literal: true

require "json"

module Chaton
  module Memory
    # Keeps the {HeapReading} of a start in a file for the next one, because Ruby reads the heap's variables before the
    # application is loaded. A reading is used for the same Ruby, bundle and roles only.
    class HeapCache
      # Larger files are rejected.
      BYTES_MAX = 65_536
      # Mask of the fingerprint's arithmetic.
      WORD = (2**64) - 1
      # The smallest slot.
      SLOT_BYTES_MIN = 32
      # A reading with more than this share of the machine's memory is rejected.
      SHARE_MAX = 0.5
      # The machine's memory if it cannot be read.
      MACHINE_BYTES = 4 << 30
      # Read here, because the native extension is not loaded yet.
      MEMINFO = "/proc/meminfo"
      # Combinations of roles at most.
      EDENS_MAX = 7
      # Version of the file's format.
      FORMAT = 1

      # A reading and its time.
      Entry = Struct.new(:reading, :taken_at, keyword_init: true)

      # Keeps a reading for the next start. Never raises.
      #
      # @param reading [Hash{Symbol=>Object}] see {HeapReading.take}
      # @param log [#info, nil] gets a line if the reading cannot be kept
      def self.store(plan, reading, log: nil)
        cache = of(plan)
        eden = cache.read&.reading&.slice(:eden)
        return if cache.write({ **reading, **eden.to_h })

        log&.info("the heap's sizes cannot be kept; the next start will run with Ruby's own", reason: cache.problem)
      end

      # @return [HeapCache] of the process that loads the code
      def self.of(plan, env: ENV)
        roles = plan.workers.zero? ? plan.roles : plan.roles_by_worker.flatten
        new(root: plan.root, work: roles.uniq.sort.join("-"), env: env)
      end

      def self.machine
        kib = File.read(MEMINFO)[/^MemTotal: +(\d+) kB/, 1]
        kib ? kib.to_i * 1024 : MACHINE_BYTES
      rescue SystemCallError
        MACHINE_BYTES
      end

      # @return [String, nil] why the last call failed
      attr_reader :problem

      # @param work [String] roles of the process, for the file's name
      # @param ruby [String] version
      # @param machine [Integer] bytes of the machine's memory
      def initialize(root:, work:, ruby: RUBY_VERSION, env: ENV, machine: HeapCache.machine)
        @machine = machine
        @root = root
        @env = env
        @ruby = ruby
        @name = "heap-#{work.gsub(/[^\w-]+/, "_")}-ruby#{ruby}.json"
      end

      def read
        @problem = nil
        paths.each do |path|
          @path = path
          entry = entry_of(path)
          return entry if entry
        end
        nil
      end

      def write(reading)
        text = text_of(reading)
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

      # Adds the eden that was found to the kept reading, if there is one, in its file. Never raises.
      #
      # @param roles [String] of the worker that found it
      def keep_eden(roles, bytes)
        reading = read&.reading or return
        replace(@path, text_of({ **reading, eden: { **reading[:eden].to_h, roles.to_sym => bytes } }))
      rescue SystemCallError
        nil
      end

      # @return [Array<String>] possible places, the usual one first
      def paths
        [(File.join(@root, "tmp/cache/chaton") if File.directory?(File.join(@root, "tmp"))), personal]
          .compact.map { |folder| File.join(folder, @name) }
      end

      private

      # Used if the application has no tmp directory, or none that can be written to.
      def personal
        home = @env["XDG_CACHE_HOME"].to_s
        home = File.join(@env["HOME"], ".cache") if home.empty? && @env["HOME"].to_s.start_with?("/")
        File.join(home, "chaton", format("%016x", fingerprint(@root))) if home.start_with?("/")
      end

      def identity = { ruby: @ruby, platform: RUBY_PLATFORM, bundle: bundle }

      # Fingerprint of the bundle, because other gems make another heap.
      def bundle
        gemfile = @env["BUNDLE_GEMFILE"].to_s
        gemfile = File.join(@root, "Gemfile") if gemfile.empty?
        lock = File.basename(gemfile) == "gems.rb" ? gemfile.sub(/\.rb\z/, ".locked") : "#{gemfile}.lock"
        format("%016x", fingerprint(File.binread(File.expand_path(lock, @root))))
      rescue SystemCallError
        "none"
      end

      # FNV-1a over words of eight bytes. Ruby's digest libraries are gems, and loading one here could conflict with the
      # version in the application's bundle.
      def fingerprint(text)
        padded = text.b.ljust((text.bytesize | 7) + 1, "\0")
        padded.unpack("Q<*").inject(0xcbf29ce484222325) { |hash, word| ((hash ^ word) * 0x100000001b3) & WORD }
      end

      def entry_of(path)
        return unless File.file?(path)
        return reject("#{path} is too large") if File.size(path) > BYTES_MAX

        kept = JSON.parse(File.read(path), symbolize_names: true)
        return reject("#{path} holds no reading") unless kept.is_a?(Hash) && kept[:format] == FORMAT
        return reject("the last reading is of another Ruby or another bundle") unless kept >= identity

        entry = Entry.new(reading: kept[:reading], taken_at: kept[:taken_at])
        sound?(entry) ? entry : reject("#{path} holds impossible figures")
      rescue SystemCallError, JSON::ParserError, EncodingError => e
        reject("#{path} cannot be read: #{e.class}")
      end

      def reject(reason)
        @problem = reason
        nil
      end

      # The file may have been edited, and decides how much memory the process takes.
      def sound?(entry)
        reading = entry.reading
        return false unless reading.is_a?(Hash) && entry.taken_at.is_a?(Integer)

        figures = reading.values_at(:live_slots, :old_objects)
        figures.all? { |figure| count?(figure) } && pools?(reading[:pools]) && eden?(reading.fetch(:eden, {}))
      end

      def eden?(eden)
        eden.is_a?(Hash) && eden.size <= EDENS_MAX &&
          eden.values.all? { |bytes| bytes.is_a?(Integer) && bytes.between?(1, @machine * SHARE_MAX) }
      end

      # All objects together must fit into this machine.
      def pools?(pools)
        pools.is_a?(Array) && pools.size.between?(1, 16) &&
          pools.all? { |pool| pool.is_a?(Array) && pool.size == 2 && pool.all? { |figure| count?(figure) } } &&
          pools.sum { |size, live| [size, SLOT_BYTES_MIN].max * live } <= @machine * SHARE_MAX
      end

      def count?(figure) = figure.is_a?(Integer) && figure.between?(0, @machine / SLOT_BYTES_MIN)

      def text_of(reading)
        JSON.generate({ format: FORMAT, **identity, taken_at: Time.now.to_i, reading: reading })
      end

      # Atomically.
      def replace(path, text)
        # Needed here only, and slow to load for the first of two lives of a server.
        require "fileutils"
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
