# frozen_string_literal: true

require "rbconfig"
require_relative "../native_library"

module Chaton
  module Memory
    # The shared library of an allocator, which can be preloaded.
    class Library
      # Directories, separated by colons, that are searched instead of all others.
      VARIABLE = "CHATON_ALLOCATOR_PATH"
      # The dynamic linker's default directories.
      USUAL = ["/usr/local/lib", "/usr/local/lib64", "/lib/*-linux-*", "/usr/lib/*-linux-*", "/lib64", "/usr/lib64",
               "/lib", "/usr/lib", "/opt/homebrew/lib"].freeze
      # Further directories of the dynamic linker.
      LINKER_CONF = "/etc/ld.so.conf"
      # File names by allocator.
      NAMES = { "jemalloc" => "libjemalloc.so.2", "mimalloc" => "libmimalloc.so.[0-9]*" }.freeze
      # The jemalloc that is built with the native extension, in the same directory.
      BUNDLED = "libchaton_jemalloc.so"
      # Must be the same as in Ruby's executable: class and byte order (bytes 4 and 5) and machine (18, 19).
      ELF_FIELDS = [4..5, 18..19].freeze
      # The end of jemalloc's version as compiled into it, 5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c. Searched
      # first, because the whole pattern would be tried at each digit of a megabyte.
      JEMALLOC_COMMIT = /-g[0-9a-f]{40}/n
      # The version before it.
      JEMALLOC_VERSION = /(\d+\.\d+\.\d+)-\d+\z/n

      # @param name [String] "jemalloc" or "mimalloc"
      # @return [Array<Library>] the installed ones, best first
      def self.all(name, env: ENV)
        only = env[VARIABLE]
        folders = only ? only.split(":") : directories
        # Several links may lead to one file; of several versions the newest goes first.
        paths = folders.flat_map { |folder| Dir[File.join(folder, NAMES.fetch(name))].sort_by { |path| newest(path) } }
        paths = paths.uniq { |path| File.realpath(path) }
        paths += bundled if name == "jemalloc" && !only
        paths.map { |path| new(name, path) }
      end

      # @return [Array<String>] directories of the dynamic linker
      def self.directories
        configured(LINKER_CONF, 0).concat(USUAL.flat_map { |pattern| Dir[pattern] })
          .select { |folder| File.directory?(folder) }.uniq { |folder| File.realpath(folder) }
      end

      def self.bundled = [NativeLibrary.built(BUNDLED)].compact

      # libmimalloc.so.2.0 before libmimalloc.so.1.
      def self.newest(path) = path[/so\.([\d.]+)\z/, 1].to_s.split(".").map { |number| -number.to_i }

      # Follows nested includes to a limited depth.
      def self.configured(file, depth)
        return [] if depth > 4

        File.readlines(file, chomp: true).map { |line| line.sub(/#.*/, "").strip }.flat_map do |line|
          pattern = line[/\Ainclude\s+(.+)/, 1]
          next [line].reject(&:empty?) unless pattern

          Dir[File.expand_path(pattern, File.dirname(file))].flat_map { |included| configured(included, depth + 1) }
        end
      rescue SystemCallError
        []
      end
      private_class_method :bundled, :newest, :configured

      # @return [String] "jemalloc" or "mimalloc"
      attr_reader :name, :path

      def initialize(name, path)
        @name = name
        @path = path
      end

      # @return [Boolean] whether it came with Chaton
      def bundled? = File.basename(@path) == BUNDLED

      # @return [String, nil] why this Ruby cannot load it
      def unfit
        ours = head(RbConfig.ruby)
        theirs = head(@path)
        return "it is not a shared library" unless theirs.start_with?("\x7FELF".b)

        "it is built for another architecture" unless ELF_FIELDS.all? { |at| theirs[at] == ours[at] }
      rescue SystemCallError => e
        e.message.sub(/ @ .*/, "")
      end

      def version
        return of_jemalloc(File.binread(@path)) if @name == "jemalloc"

        File.realpath(@path)[/so\.([\d.]+)\z/, 1]
      rescue SystemCallError
        nil
      end

      private

      def of_jemalloc(bytes)
        at = bytes.index(JEMALLOC_COMMIT)
        at && bytes[[at - 32, 0].max...at][JEMALLOC_VERSION, 1]
      end

      def head(path) = File.binread(path, 20).to_s
    end
  end
end
