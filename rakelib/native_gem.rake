# frozen_string_literal: true

require_relative "../ext/chaton/before_start"
require_relative "support/native_gem"
require_relative "support/ruby_headers"
require_relative "support/zig_toolchain"

# Builds a gem that contains compiled shared objects, for another machine, with its own output folder for each platform.
class NativeGemBuild
  ROOT = Toolchain::ROOT

  def initialize(platform, rubies)
    @platform = platform
    @rubies = rubies
    @folder = File.join(Toolchain.target, "gem", platform)
    @zig = ZigToolchain.new(platform, glibc: NativeGem::BASELINE, folder: File.join(@folder, "bin")).write
    spec = Gem::Specification.load(File.join(ROOT, "chaton.gemspec"))
    @gem = NativeGem.new(spec, platform, File.join(@folder, "gem"))
    @env = { **Toolchain.env, **@zig.env, "CARGO_TARGET_DIR" => @folder }
  end

  def run
    @gem.start(ROOT)
    @rubies.each { |headers| add_extension(headers) }
    add_allocator
    add_before_start
    @gem.add_licenses(licenses)
    path = @gem.pack(File.join(ROOT, "pkg"))
    puts "#{path}: #{megabytes(File.size(path))}, for Ruby #{@gem.versions.join(", ")}"
  end

  private

  def add_extension(headers)
    unless @platform.start_with?("#{headers.cpu}-")
      raise NativeGem::Failed, "the headers of Ruby #{headers.minor} are for #{headers.cpu}, not #{@platform}"
    end

    cargo("compiling for Ruby #{headers.minor}", "--package", EXTENSION, "--features", "vendored",
          "RUBY" => headers.write_program(File.join(@folder, "bin")), "RUBY_VERSION" => headers.minor)
    size = @gem.add_extension(File.join(output, "libchaton_native.so"), headers.minor)
    puts "Ruby #{headers.minor}: a shared object of #{megabytes(size)}"
  end

  def add_allocator
    cargo("compiling jemalloc", "--package", BundledAllocator::PACKAGE)
    library = File.join(@folder, BundledAllocator::NAME)
    BundledAllocator.link(BundledAllocator.archive_in(output), library, compiler: [@zig.compiler])
    @gem.add_library(library)
  end

  def add_before_start
    library = File.join(@folder, BeforeStart::NAME)
    BeforeStart.compile(library, compiler: [@zig.compiler]) or
      raise NativeGem::Failed, "#{BeforeStart::SOURCE} could not be compiled; the compiler's messages are above"
    @gem.add_library(library)
  end

  def output = File.join(@folder, @zig.rust_target, "release")

  def cargo(title, *arguments, **env)
    command = [Toolchain.cargo, "build", "--locked", "--release", "--target", @zig.rust_target, *arguments]
    system({ **@env, **env }, "bin/support/progress", "#{title} (#{@platform})", *command, chdir: ROOT) or
      raise NativeGem::Failed, "cargo could not build it; its messages are above"
  end

  def licenses
    command = [Toolchain.cargo, "metadata", "--locked", "--format-version", "1", "--filter-platform", @zig.rust_target,
               "--features", "vendored", "--manifest-path", File.join(ROOT, "ext/chaton/Cargo.toml")]
    metadata = JSON.parse(IO.popen(command, chdir: ROOT, &:read))
    unwinder = File.read(File.join(@zig.library, "libunwind/LICENSE.TXT"))
    ThirdPartyLicenses.new(metadata, roots: [EXTENSION, BundledAllocator::PACKAGE],
                                     others: { "LLVM libunwind" => unwinder }).to_s
  end

  def megabytes(bytes) = format("%.1f MB", bytes / 1e6)
end

desc "Build a gem with compiled shared objects for x86_64-linux-gnu or aarch64-linux-gnu into pkg/ (CONTRIBUTING.md)"
task "gem:native", [:platform] do |_, args|
  platform = args[:platform]
  abort "name one of: #{ZigToolchain::PLATFORMS.keys.join(", ")}" unless ZigToolchain::PLATFORMS.key?(platform)
  NativeGemBuild.new(platform, RubyHeaders.all(ENV.fetch("CHATON_GEM_RUBIES", nil))).run
rescue NativeGem::Failed, RubyHeaders::Unusable, ZigToolchain::Missing, BundledAllocator::Unavailable => e
  abort e.message
end
