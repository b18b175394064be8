# frozen_string_literal: true

require "digest"
require "fileutils"
require_relative "../ext/chaton/before_start"
require_relative "../ext/chaton/bundled_allocator"
require_relative "../ext/chaton/toolchain"

LIBRARIES = File.join(Toolchain::ROOT, "lib", "chaton")
BUNDLED_ALLOCATOR = File.join(LIBRARIES, BundledAllocator::NAME)
BEFORE_START = File.join(LIBRARIES, BeforeStart::NAME)
EXTENSION = "chaton-ext"

# Copies a built library to the place from which it is loaded.
def install_library(built, name)
  installed = File.join(LIBRARIES, name)
  return if File.exist?(installed) && FileUtils.compare_file(built, installed)
  Toolchain.replace(installed) { |fresh| FileUtils.cp(built, fresh) }
end

# Benchmarks record which profile they measured: tmp/extension names it beside the digest of the file that it is of.
def record_profile(profile)
  FileUtils.mkdir_p("tmp")
  digest = Digest::SHA256.file(File.join(LIBRARIES, "chaton_native.so")).hexdigest
  File.write("tmp/extension", "#{profile} #{digest}\n")
end

def cargo_build(profile, package)
  system(Toolchain.env, "bin/support/progress", "compiling #{package} (profile #{profile})", Toolchain.cargo, "build",
         "--locked", "--profile", profile, "--package", package, chdir: Toolchain::ROOT)
end

# In a cargo run of its own: built together, the two packages would have other features of shared dependencies, which
# would all be compiled again. A server also runs without it.
def compile_allocator(profile, folder)
  return if BundledAllocator.current?(BUNDLED_ALLOCATOR)
  BundledAllocator.attempt(BUNDLED_ALLOCATOR) do
    cargo_build(profile, BundledAllocator::PACKAGE) or raise BundledAllocator::Unavailable, "cargo could not compile it"
    BundledAllocator.archive_in(folder)
  end
end

def compile(allocator:)
  Toolchain.check!
  profile = ENV.fetch("CHATON_PROFILE", "dev")
  folder = File.join(Toolchain.target, profile == "dev" ? "debug" : profile)
  cargo_build(profile, EXTENSION) or abort "cargo could not build the extension; its messages are above"
  install_library(File.join(folder, "libchaton_native.so"), "chaton_native.so")
  BeforeStart.current?(BEFORE_START) || BeforeStart.attempt(BEFORE_START)
  record_profile(profile)
  compile_allocator(profile, folder) if allocator
rescue Toolchain::Missing => e
  abort e.message
end

desc "Build the native extension and the bundled jemalloc into lib/chaton (CHATON_PROFILE=release for benchmarks)"
task(:compile) { compile(allocator: true) }

desc "Build the native extension alone, for machines that have a jemalloc"
task("compile:extension") { compile(allocator: false) }

desc "Build the gem into pkg/"
task :gem do
  mkdir_p "pkg", verbose: false
  version = Gem::Specification.load("chaton.gemspec").version
  sh "gem", "build", "--silent", "--output", "pkg/chaton-#{version}.gem", "chaton.gemspec", verbose: false
end
