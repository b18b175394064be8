# frozen_string_literal: true

require "fileutils"
require_relative "../ext/chaton/bundled_allocator"
require_relative "../ext/chaton/toolchain"

# Copies the built shared object to where Ruby loads it from. By rename: a server that has the old file
# mapped keeps it, and none ever sees half of the new one.
def install_extension(built, installed)
  return if File.exist?(installed) && FileUtils.compare_file(built, installed)
  fresh = "#{installed}.#{Process.pid}"
  FileUtils.cp(built, fresh)
  File.rename(fresh, installed)
end

# A minute or two of compiling for what hardly ever changes, so cargo is not even asked while nothing has.
def build_bundled_allocator
  path = File.join(Toolchain::ROOT, "lib", "chaton", BundledAllocator::NAME)
  BundledAllocator.attempt(path) unless BundledAllocator.current?(path)
end

desc "Build the native extension into lib/chaton, and the jemalloc that is preloaded where the system has none"
task :compile do
  begin
    Toolchain.check!
  rescue Toolchain::Missing => e
    abort e.message
  end
  target = ENV.fetch("CARGO_TARGET_DIR", File.join(Toolchain::ROOT, "target"))
  # Beside the extension, whose C libraries and last steps keep one processor busy each.
  allocator = Thread.new { build_bundled_allocator }
  compiled = system(Toolchain.env, Toolchain.cargo, "build", "--locked", "--release", "--quiet",
                    "--package", "chaton-ext", chdir: Toolchain::ROOT)
  abort "cargo could not build the extension; what it says is above" unless compiled
  install_extension(File.join(target, "release", "libchaton_native.so"),
                    File.join(Toolchain::ROOT, "lib", "chaton", "chaton_native.so"))
  allocator.join
end

desc "Build the gem into pkg/"
task :gem do
  mkdir_p "pkg", verbose: false
  version = Gem::Specification.load("chaton.gemspec").version
  sh "gem", "build", "--silent", "--output", "pkg/chaton-#{version}.gem", "chaton.gemspec", verbose: false
end
