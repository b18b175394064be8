# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "shellwords"
require_relative "toolchain"

# Builds the jemalloc that is preloaded where the system has none: cargo compiles it as a static library (a dependency
# of the crate chaton-jemalloc does it in its build script), and the C compiler links that into a shared object.
#
# A server also runs without it, so a failure is explained and does not stop the build.
module BundledAllocator
  # It cannot be built here; the message says why.
  class Unavailable < StandardError; end

  NAME = "libchaton_jemalloc.so"
  PACKAGE = "chaton-jemalloc"
  # The dependency whose build script leaves the library in its directory.
  BUILDER = "tikv-jemalloc-sys"
  ARCHIVE = "lib/libjemalloc_pic.a"
  # A change to one of these may change what is built.
  SOURCES = ["Cargo.lock", "Cargo.toml", "crates/jemalloc/Cargo.toml"].map { |name| File.join(Toolchain::ROOT, name) }

  module_function

  # @param path [String] of the shared object
  # @return [Boolean] whether nothing has changed since it was built
  def current?(path)
    File.file?(path) && SOURCES.all? { |source| File.mtime(source) <= File.mtime(path) }
  end

  # Builds the shared object, or explains why it could not.
  #
  # @param path [String] the shared object; it is replaced in one step
  # @yieldreturn [String] path of the static library; without a block cargo compiles it
  # @return [Boolean] whether it was built
  def attempt(path)
    check
    archive = block_given? ? yield : compile
    Toolchain.replace(path) { |fresh| link(archive, fresh) }
    true
  rescue Unavailable => e
    explain(e)
    false
  end

  def explain(error)
    warn "Chaton's own jemalloc is not built: #{error.message}. Servers use the system's jemalloc, or the C library."
  end

  # Preloading works on Linux with the GNU C library only.
  # @raise [Unavailable]
  def check
    host = RbConfig::CONFIG["host_os"]
    gnu = host.match?(/\Alinux(-gnu\w*)?\z/)
    raise Unavailable, "it is for Linux with the GNU C library, and this is #{host}" unless gnu
    return if system("make --version", out: File::NULL, err: File::NULL)

    raise Unavailable, "its sources need make (Debian: apt-get install build-essential)"
  end

  # @return [String] path of the static library
  def compile
    compiled = system(Toolchain.env, Toolchain.cargo, "build", "--locked", "--release", "--quiet", "--package", PACKAGE,
                      chdir: Toolchain::ROOT)
    raise Unavailable, "cargo could not compile it; its messages are above" unless compiled

    archive_in(File.join(Toolchain.target, "release"))
  end

  # @param folder [String] where cargo put what it built
  # @return [String] path of the static library there
  # @raise [Unavailable]
  def archive_in(folder)
    Dir[File.join(folder, "build", "#{BUILDER}-*", "out", ARCHIVE)].max_by { |path| File.mtime(path) } or
      raise Unavailable, "cargo left no #{ARCHIVE}"
  end

  # The linker takes the whole library, because nothing refers to its functions: it is loaded for the names it replaces.
  def link(archive, path, compiler: BundledAllocator.compiler)
    linked = system(*compiler, "-shared", "-o", path, "-Wl,-soname,#{NAME}", "-Wl,-z,relro,-z,now,--strip-debug",
                    "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-lpthread", "-ldl", "-lm")
    raise Unavailable, "#{compiler.first} could not link it; its messages are above" unless linked
  end

  def compiler = (ENV["CC"] || RbConfig::CONFIG["CC"] || "cc").shellsplit
end

# From the Makefile of an installed gem: ruby bundled_allocator.rb PATH
BundledAllocator.attempt(ARGV.fetch(0)) if $PROGRAM_NAME == __FILE__
