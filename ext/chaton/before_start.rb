# frozen_string_literal: true

require_relative "bundled_allocator"

# Builds the library of before_start.c, without which no thread is bound to a core.
#
# A server also runs without it, so a failure is explained and does not stop the build.
module BeforeStart
  NAME = "libchaton_before_start.so"
  SOURCE = File.join(__dir__, "before_start.c")

  module_function

  # @param path [String] of the shared object
  # @return [Boolean] whether nothing has changed since it was built
  def current?(path) = File.file?(path) && File.mtime(SOURCE) <= File.mtime(path)

  # Builds the shared object, or explains why it could not.
  #
  # @param path [String] the shared object; it is replaced in one step
  # @return [Boolean] whether it was built
  def attempt(path)
    Toolchain.replace(path) { |fresh| compile(fresh) or return explain }
    true
  end

  # @return [Boolean, nil] whether it was compiled; the compiler has said why not
  def compile(path, compiler: BundledAllocator.compiler)
    system(*compiler, "-shared", "-fPIC", "-O2", "-o", path, SOURCE, "-Wl,-soname,#{NAME}",
           "-Wl,-z,relro,-z,now,--strip-debug", "-ldl")
  end

  def explain
    warn "#{NAME} is not built: the compiler's messages are above. Servers bind no threads to a core (cpu_affinity)."
    false
  end
end

# From the Makefile of an installed gem: ruby before_start.rb PATH
BeforeStart.attempt(ARGV.fetch(0)) if $PROGRAM_NAME == __FILE__
