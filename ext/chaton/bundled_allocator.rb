# frozen_string_literal: true

require "fileutils"
require "json"
require "rbconfig"
require "shellwords"
require_relative "toolchain"

# Builds the jemalloc that is preloaded where the system has none: cargo compiles it (the crate chaton-jemalloc is
# there for its build script alone), the C compiler links the static library whole into a shared object.
#
# A server runs without it, so what is missing here is said and is no error.
module BundledAllocator
  # Why there will be none.
  class Unavailable < StandardError; end

  NAME = "libchaton_jemalloc.so"
  PACKAGE = "chaton-jemalloc"
  # The dependency whose build script leaves the library in its directory.
  BUILDER = "tikv-jemalloc-sys"
  ARCHIVE = "lib/libjemalloc_pic.a"
  # A directory of its own, so that it can be built while the extension is.
  TARGET = File.join(ENV.fetch("CARGO_TARGET_DIR", File.join(Toolchain::ROOT, "target")), "jemalloc")
  # A change to one of these may change what is built.
  SOURCES = ["Cargo.lock", "Cargo.toml", "crates/jemalloc/Cargo.toml"].map { |name| File.join(Toolchain::ROOT, name) }

  module_function

  # @param path [String] of the shared object
  # @return [Boolean] whether nothing has changed since it was built
  def current?(path)
    File.file?(path) && SOURCES.all? { |source| File.mtime(source) <= File.mtime(path) }
  end

  # @param path [String] of the shared object; it is replaced in one step
  # @return [void]
  # @raise [Unavailable]
  def build(path)
    check
    fresh = "#{path}.#{Process.pid}"
    FileUtils.mkdir_p(File.dirname(path))
    link(compile, fresh)
    File.rename(fresh, path)
  ensure
    FileUtils.rm_f(fresh) if fresh
  end

  # Builds it and says why it could not, if so.
  #
  # @param path [String]
  # @return [Boolean] whether it is there
  def attempt(path)
    build(path)
    true
  rescue Unavailable => e
    warn "Chaton's own jemalloc is not built: #{e.message}. Servers use the system's, or else the C library."
    false
  end

  # Preloading it is tried on this kind of system only.
  def check
    host = RbConfig::CONFIG["host_os"]
    gnu = host.match?(/\Alinux(-gnu\w*)?\z/)
    raise Unavailable, "it is for Linux with the GNU C library, and this is #{host}" unless gnu
    return if system("make --version", out: File::NULL, err: File::NULL)

    raise Unavailable, "its sources need make (Debian: apt-get install build-essential)"
  end

  # @return [String] path of the static library
  def compile
    command = [Toolchain.cargo, "build", "--locked", "--release", "--quiet", "--target-dir", TARGET,
               "--package", PACKAGE, "--message-format=json-render-diagnostics"]
    said = IO.popen([Toolchain.env, *command, { chdir: Toolchain::ROOT }], &:readlines)
    raise Unavailable, "cargo could not compile it; what it says is above" unless Process.last_status.success?

    messages = said.grep(/\A\{/).map { |line| JSON.parse(line) }
    script = messages.find do |message|
      message["reason"] == "build-script-executed" && message["package_id"].include?(BUILDER)
    end
    archive = script && File.join(script.fetch("out_dir"), ARCHIVE)
    return archive if archive && File.file?(archive)

    raise Unavailable, "cargo left no #{ARCHIVE}"
  rescue Errno::ENOENT
    raise Unavailable, "cargo was not found"
  end

  # Whole, because nothing in it is referred to: it is loaded for the names it replaces.
  def link(archive, path)
    linked = system(*compiler, "-shared", "-o", path, "-Wl,-soname,#{NAME}", "-Wl,-z,relro,-z,now,--strip-debug",
                    "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-lpthread", "-ldl", "-lm")
    raise Unavailable, "#{compiler.first} could not link it; what it says is above" unless linked
  end

  def compiler = (ENV["CC"] || RbConfig::CONFIG["CC"] || "cc").shellsplit
end

# From the Makefile of an installed gem: ruby bundled_allocator.rb PATH
BundledAllocator.attempt(ARGV.fetch(0)) if $PROGRAM_NAME == __FILE__
