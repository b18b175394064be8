# frozen_string_literal: true

require "etc"
require "rbconfig"
require_relative "errors"

module Chaton
  # Loads the shared object for this Ruby, or explains why that cannot be done. A platform gem has one for each minor
  # version of Ruby, such as 3.3/chaton_native.so; a source gem and a checkout have one that was compiled here.
  class NativeLibrary
    # The message says in one sentence what is wrong and what to do. No LoadError, because a call that enqueues or
    # produces raises it too, and `rescue => error` is to catch it.
    class Unusable < Error; end

    FILE = "chaton_native.so"
    # The oldest GNU C library that platform gems run with: `rake gem:native` compiles for it.
    GLIBC_MIN = "2.31"
    COMPILE = "install the gem that is compiled here: `gem install chaton --platform ruby`, " \
              "or `force_ruby_platform: true` in the Gemfile"
    private_constant :COMPILE

    # @return [String, nil] version of the GNU C library; nil with another C library
    def self.glibc
      Etc.confstr(Etc::CS_GNU_LIBC_VERSION)&.delete_prefix("glibc ")
    rescue NameError, SystemCallError
      nil
    end

    # @param name [String] of a shared object that is built with the native extension
    # @return [String, nil] its path
    def self.built(name)
      [__dir__, *$LOAD_PATH.map { |folder| File.join(folder.to_s, "chaton") }]
        .map { |folder| File.join(folder, name) }.find { |path| File.file?(path) }
    end

    # @param folder [String] contains a folder for each minor version of Ruby
    # @param minor [String] version of Ruby
    # @param host_os [String] as RbConfig has it
    # @param glibc [String, nil] see {glibc}
    def initialize(folder: __dir__, minor: RUBY_VERSION[/\A\d+\.\d+/], host_os: RbConfig::CONFIG["host_os"],
                   glibc: NativeLibrary.glibc)
      @folder = folder
      @minor = minor
      @host_os = host_os
      @glibc = glibc
    end

    # @return [Boolean] whether Chaton serves on this system
    def system? = @host_os.start_with?("linux")

    # @raise [Unusable] on another system
    def check
      raise Unusable, of_other_system unless system?
    end

    # @yieldparam path [String] what to require
    # @raise [Unusable]
    def load
      check
      begin
        yield prebuilt? ? path : "chaton/chaton_native"
      rescue LoadError => e
        raise Unusable, prebuilt? ? of_prebuilt(e.message) : of_missing(e.message)
      end
    end

    private

    def path = File.join(@folder, @minor, FILE)

    def prebuilt? = File.file?(path)

    # @return [Array<String>] the versions of Ruby that this gem is built for, oldest first
    def versions
      Dir.glob("[0-9]*.[0-9]*/#{FILE}", base: @folder).map { |name| File.dirname(name) }
        .sort_by { |version| version.split(".").map(&:to_i) }
    end

    def of_other_system
      "Chaton serves on Linux, and this is #{@host_os}: use Puma for development here, " \
        "for example with `gem \"puma\", group: :development` in the Gemfile. Tests keep jobs and records in memory " \
        "with Chaton::Testing."
    end

    def of_missing(message)
      if versions.any?
        return "This gem of Chaton is built for Ruby #{versions.join(", ")}, and this is Ruby #{@minor}: #{COMPILE}."
      end

      "Chaton's native extension is not built for this Ruby (#{message}). " \
        "Build it with `rake compile` in a checkout, or install the gem anew."
    end

    def of_prebuilt(message)
      "This gem of Chaton #{unmet || "cannot be loaded (#{message})"}: #{COMPILE}."
    end

    # @return [String, nil] what this machine does not have
    def unmet
      # Only a failure needs it.
      require_relative "memory/library"
      return "is built for another processor than #{RUBY_PLATFORM}" if Memory::Library.new("chaton", path).unfit
      return "needs the GNU C library, and this system has another one (#{@host_os})" unless @glibc
      return if Gem::Version.new(@glibc) >= Gem::Version.new(GLIBC_MIN)

      "needs the GNU C library #{GLIBC_MIN} or newer, and this system has #{@glibc}"
    end
  end
end
