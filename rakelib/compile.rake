# frozen_string_literal: true

require "digest"
require "fileutils"
require_relative "../ext/chaton/bundled_allocator"
require_relative "../ext/chaton/toolchain"

LIBRARIES = File.join(Toolchain::ROOT, "lib", "chaton")
BUNDLED_ALLOCATOR = File.join(LIBRARIES, BundledAllocator::NAME)
EXTENSION = "chaton-ext"

# Copies a built library to the place from which it is loaded. It replaces the old file by renaming: a running server
# keeps the file that it has mapped, and no process ever reads half of the new one.
def install_library(built, name)
  installed = File.join(LIBRARIES, name)
  return if File.exist?(installed) && FileUtils.compare_file(built, installed)
  fresh = "#{installed}.#{Process.pid}"
  FileUtils.cp(built, fresh)
  File.rename(fresh, installed)
end

# Benchmarks record which profile they measured: tmp/extension names it beside the digest of the file that it is of.
def record_profile(profile)
  FileUtils.mkdir_p("tmp")
  digest = Digest::SHA256.file(File.join(LIBRARIES, "chaton_native.so")).hexdigest
  File.write("tmp/extension", "#{profile} #{digest}\n")
end

def cargo_build(profile, packages)
  system(Toolchain.env, "bin/support/progress", "compiling (profile #{profile})", Toolchain.cargo, "build", "--locked",
         "--profile", profile, *packages.flat_map { |package| ["--package", package] }, chdir: Toolchain::ROOT)
end

# @return [Array<String>] the package of the bundled jemalloc, when it has to be built and can be
def allocator_packages
  return [] if BundledAllocator.current?(BUNDLED_ALLOCATOR)
  BundledAllocator.check
  [BundledAllocator::PACKAGE]
rescue BundledAllocator::Unavailable => e
  BundledAllocator.explain(e)
  []
end

def compile(allocator:)
  Toolchain.check!
  profile = ENV.fetch("CHATON_PROFILE", "dev")
  extras = allocator ? allocator_packages : []
  # A server runs without the bundled allocator, so its failure does not stop the extension.
  built = cargo_build(profile, [EXTENSION, *extras])
  built ||= extras.any? && cargo_build(profile, [EXTENSION]) && extras.clear
  abort "cargo could not build the extension; its messages are above" unless built
  folder = File.join(Toolchain.target, profile == "dev" ? "debug" : profile)
  install_library(File.join(folder, "libchaton_native.so"), "chaton_native.so")
  record_profile(profile)
  BundledAllocator.attempt(BUNDLED_ALLOCATOR) { BundledAllocator.archive_in(folder) } if extras.any?
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
