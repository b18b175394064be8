# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "rubygems/package"
require_relative "../../ext/chaton/toolchain"
require_relative "../../lib/chaton/native_library"
require_relative "third_party_licenses"

# A platform gem: the Ruby code, a shared object for each version of Ruby, and the bundled jemalloc. It installs without
# a compiler.
class NativeGem
  # It cannot be built; the message says why.
  class Failed < StandardError; end

  FILE = Chaton::NativeLibrary::FILE
  BASELINE = Chaton::NativeLibrary::GLIBC_MIN
  LICENSES = "THIRD_PARTY_LICENSES"
  # Files of the source gem that a platform gem does not need.
  SOURCES = %r{\A(?:ext|crates)/|\ACargo\.}
  # A name of a version of the GNU C library, as a shared object has it.
  GLIBC = /\0GLIBC_(\d+(?:\.\d+)+)(?=\0)/n

  # Functions that Ruby has.
  OF_RUBY = /\A(?:rb|ruby|onig|onigenc|st)_/

  # @param library [String]
  # @return [Array<String>] functions that it needs from no library in particular
  def self.undefined(library)
    output, status = Open3.capture2("nm", "--dynamic", "--undefined-only", "--format=posix", library)
    raise Failed, "nm (Debian: binutils) cannot read #{library}" unless status.success?

    output.lines.map(&:split).filter_map { |name, kind| name if kind == "U" && !name.include?("@") }
  end

  # @param spec [Gem::Specification] of the source gem
  # @param platform [String]
  # @param folder [String] in which the gem's files are put together
  # @param undefined [#call] see {undefined}
  def initialize(spec, platform, folder, undefined: NativeGem.method(:undefined))
    @undefined = undefined
    @spec = spec
    @platform = platform
    @folder = folder
  end

  # Begins with the files of the source gem.
  def start(root)
    FileUtils.rm_rf(@folder)
    kept.each { |name| put(File.join(root, name), name) }
  end

  # @param library [String] a shared object
  # @param minor [String] the version of Ruby that it is for
  # @return [Integer] its size in bytes
  def add_extension(library, minor)
    check(library)
    put(library, "lib/chaton/#{minor}/#{FILE}")
    File.size(library)
  end

  # @param library [String] a shared object that servers preload
  def add_library(library)
    check(library)
    put(library, "lib/chaton/#{File.basename(library)}")
  end

  # @param text [String]
  def add_licenses(text) = File.write(File.join(@folder, LICENSES), text)

  # @return [Array<String>] the versions of Ruby, oldest first
  def versions
    Dir.glob("lib/chaton/[0-9]*.[0-9]*/#{FILE}", base: @folder).map { |path| path.split("/")[-2] }
      .sort_by { |version| version.split(".").map(&:to_i) }
  end

  # @return [Gem::Specification]
  def specification
    raise Failed, "there is no shared object for any Ruby" if versions.empty?

    major, minor = versions.last.split(".").map(&:to_i)

    spec = @spec.dup
    spec.platform = @platform
    spec.extensions = []
    spec.required_ruby_version = [">= #{versions.first}", "< #{major}.#{minor + 1}.dev"]
    spec.files = Dir.glob("**/*", base: @folder).select { |name| File.file?(File.join(@folder, name)) }.sort
    spec
  end

  # Names the file itself: RubyGems before 3.3.22 leaves "-gnu" out.
  #
  # @param target [String] folder of the gem
  # @return [String] path of the gem
  def pack(target)
    spec = specification
    FileUtils.mkdir_p(target)
    path = File.join(File.expand_path(target), "#{spec.name}-#{spec.version}-#{@platform}.gem")
    Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) do
      Dir.chdir(@folder) { Gem::Package.build(spec, false, false, path) }
    end
    path
  end

  private

  def kept = @spec.files.grep_v(SOURCES)

  def put(from, name)
    to = File.join(@folder, name)
    FileUtils.mkdir_p(File.dirname(to))
    FileUtils.cp(from, to)
  end

  # A shared object may name functions that nothing has; they are looked for when it is loaded.
  def check(library)
    newest = File.binread(library).scan(GLIBC).flatten.map { |version| Gem::Version.new(version) }.max
    if newest && newest > Gem::Version.new(BASELINE)
      raise Failed, "#{library} needs version #{newest} of the GNU C library, and gems are for #{BASELINE}"
    end

    unknown = @undefined.call(library).grep_v(OF_RUBY)
    return if unknown.empty?

    raise Failed, "#{library} needs #{unknown.join(", ")}, which version #{BASELINE} of the GNU C library does not have"
  end
end
