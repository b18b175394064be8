# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "tmpdir"
require "yaml"
require "chaton/ruby_release"
require_relative "../../../rakelib/support/native_gem"
require_relative "../../../rakelib/support/ruby_headers"
require_relative "../../../rakelib/support/zig_toolchain"

class NativeGemTest < Minitest::Test
  ROOT = File.expand_path("../../..", __dir__)

  def setup
    @undefined = %w[rb_ary_push ruby_abi st_insert]
    @folder = Dir.mktmpdir
    @gem = NativeGem.new(Gem::Specification.load(File.join(ROOT, "chaton.gemspec")), "aarch64-linux-gnu",
                         File.join(@folder, "gem"), undefined: ->(_) { @undefined })
  end

  def teardown
    FileUtils.rm_rf(@folder)
  end

  def test_a_gem_has_an_object_for_each_ruby_and_nothing_to_compile
    add("3.1", "3.4", "4.0")
    @gem.add_library(library("GLIBC_2.17", name: "libchaton_jemalloc.so"))
    @gem.add_licenses("licences")
    path = @gem.pack(@folder)
    spec = Gem::Package.new(path).spec

    assert_equal "chaton-#{spec.version}-aarch64-linux-gnu.gem", File.basename(path)
    assert_equal "aarch64-linux-gnu", spec.original_platform
    assert_empty spec.extensions
    assert_equal %w[lib/chaton/3.1/chaton_native.so lib/chaton/3.4/chaton_native.so lib/chaton/4.0/chaton_native.so
                    lib/chaton/libchaton_jemalloc.so], spec.files.grep(/\.so\z/)
    assert_empty %w[lib/chaton.rb exe/chaton LICENSE THIRD_PARTY_LICENSES sig/native.rbs] - spec.files
    assert_empty spec.files.grep(/\.rs\z|Cargo|extconf/)
  end

  def test_a_gem_is_for_the_rubies_from_its_oldest_to_its_newest
    add("3.1", "3.9", "3.10")
    required = @gem.specification.required_ruby_version

    taken = %w[3.0.6 3.1.0 3.2.1 3.10.2 3.11.0.dev 3.11.0]
      .select { |version| required.satisfied_by?(Gem::Version.new(version)) }
    assert_equal %w[3.1.0 3.2.1 3.10.2], taken
  end

  def test_an_object_that_needs_a_newer_c_library_is_refused
    error = assert_raises(NativeGem::Failed) { @gem.add_extension(library("GLIBC_2.4", "GLIBC_2.34"), "3.1") }
    assert_match(/needs version 2\.34 of the GNU C library, and gems are for 2\.31\z/, error.message)
  end

  def test_an_object_that_needs_a_function_of_a_newer_c_library_is_refused
    @undefined << "pthread_mutex_clocklock"
    error = assert_raises(NativeGem::Failed) { @gem.add_extension(library("GLIBC_2.31"), "3.1") }
    assert_match(/needs pthread_mutex_clocklock, which version 2\.31 of the GNU C library does not/, error.message)
  end

  def test_the_headers_of_another_ruby_are_read_where_they_lie
    path = foreign_ruby
    headers = RubyHeaders.new(path)
    answer, = Open3.capture2(headers.write_program(File.join(@folder, "bin")), "--disable-gems")
    values = answer.split("\x1E").to_h { |pair| pair.split("\x1F", 2) }

    assert_equal %w[3.9 aarch64], [headers.minor, headers.cpu]
    assert_equal File.join(@folder, "root/usr/include/ruby-3.9.0"), values["rubyhdrdir"]
    refute_includes values.keys, "cflags"
  end

  def test_headers_that_are_not_there_are_named
    path = foreign_ruby
    FileUtils.rm(File.join(@folder, "root/usr/include/ruby-3.9.0/ruby.h"))

    error = assert_raises(RubyHeaders::Unusable) { RubyHeaders.new(path) }
    assert_match(%r{belongs to headers that are not there: .*/root/usr/include/ruby-3\.9\.0/ruby\.h\z}, error.message)
    assert_raises(RubyHeaders::Unusable) { RubyHeaders.new("/nonexistent/rbconfig.rb") }
  end

  def test_without_a_list_the_headers_are_of_this_ruby
    assert_equal [RUBY_VERSION[/\d+\.\d+/]], RubyHeaders.all(nil).map(&:minor)
  end

  def test_the_compiler_is_zig_for_the_oldest_c_library
    with_zig do
      zig = ZigToolchain.new("aarch64-linux-gnu", glibc: "2.31", folder: File.join(@folder, "bin")).write
      printed, = Open3.capture2(zig.compiler, "--target=aarch64-unknown-linux-gnu", "a file.c", "-lgcc_s")

      assert_equal "cc -target aarch64-linux-gnu.2.31 -fno-sanitize=undefined a file.c -lunwind -g0\n", printed
      compiled, = Open3.capture2(zig.compiler, "-c", "file.c")
      assert_match(/ -fdata-sections -fno-unwind-tables \S+ -c file.c -g0$/, compiled)
      assert_equal [zig.compiler, "cc"], zig.env.values_at("CC", "HOST_CC")
      assert_includes zig.env["BINDGEN_EXTRA_CLANG_ARGS"], "/zig/lib/libc/include/aarch64-linux-gnu"
    end
  end

  def test_openssl_is_configured_without_what_is_not_used
    with_zig do
      ZigToolchain.new("x86_64-linux-gnu", glibc: "2.31", folder: @folder).write
      file("Configure", "print qq(@ARGV);")
      configured, = Open3.capture2(File.join(@folder, "perl"), "./Configure", "no-shared", chdir: @folder)
      other, = Open3.capture2({ "CC" => "cc" }, File.join(@folder, "perl"), "-e", "print $ENV{CC}")
      file("asm/aes-gcm-avx512.pl", "print $ENV{CC};")
      large, = Open3.capture2({ "CC" => "cc" }, File.join(@folder, "perl"), "asm/aes-gcm-avx512.pl", chdir: @folder)

      assert_match(/\Ano-shared -Oz .*no-quic/, configured)
      assert_equal ["cc", "echo clang version 6.0"], [other, large]
    end
  end

  def test_licences_are_those_of_what_is_linked
    text = ThirdPartyLicenses.new(metadata, roots: ["ours"], others: { "unwinder" => "Of C." }).to_s

    assert_match(/^linked 1\.0: MIT$/, text)
    assert_match(/^openssl-src 3\.0: MIT$/, text)
    assert_match(/^-+\nopenssl-src 3\.0\nunwinder\n-+\n\nOf C\.$/, text)
    assert_match(/^linked 1\.0\n-+\n\nFree\.$/, text)
    refute_match(/macro|builder|ours|elsewhere/, text)
  end

  def test_the_workflow_builds_each_platform_with_this_task
    job = YAML.load_file(File.join(ROOT, ".github/workflows/gems.yml")).dig("jobs", "platform")

    assert_equal ZigToolchain::PLATFORMS.keys, job.dig("strategy", "matrix", "include").map { |row| row["platform"] }
    assert_includes job["steps"].map { |step| step["run"] }, 'rake "gem:native[${{ matrix.platform }}]"'
    assert_equal Chaton::RubyRelease::TRIED - job["steps"].map { |step| step.dig("with", "ruby-version") }, []
  end

  private

  def add(*minors)
    @gem.start(ROOT)
    minors.each { |minor| @gem.add_extension(library("GLIBC_2.2.5", "GLIBC_2.31"), minor) }
  end

  def library(*versions, name: "library.so")
    path = File.join(@folder, name)
    File.binwrite(path, "\x7FELF\0#{versions.join("\0")}\0")
    path
  end

  # As a distribution installs it, in another root directory.
  def foreign_ruby
    file("root/usr/include/ruby-3.9.0/ruby.h")
    file("root/usr/include/aarch64-linux-gnu/ruby-3.9.0/ruby/config.h")
    file("root/usr/lib/aarch64-linux-gnu/ruby/3.9.0/rbconfig.rb", <<~'RUBY')
      module RbConfig
        RUBY_VERSION.start_with?("3.9.") or
          raise "ruby lib version (3.9.1) doesn't match executable version (#{RUBY_VERSION})"
        CONFIG = {}
        CONFIG["prefix"] = File.dirname(__FILE__).chomp!("/lib/aarch64-linux-gnu/ruby/3.9.0")
        CONFIG.update("MAJOR" => "3", "MINOR" => "9", "target_cpu" => "aarch64", "cflags" => "-g",
                      "rubyhdrdir" => "#{CONFIG["prefix"]}/include/ruby-3.9.0",
                      "rubyarchhdrdir" => "#{CONFIG["prefix"]}/include/aarch64-linux-gnu/ruby-3.9.0")
      end
    RUBY
  end

  def file(name, text = "")
    path = File.join(@folder, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
    path
  end

  # A zig that prints its arguments.
  def with_zig
    path = file("zig", "#!/bin/sh\n[ \"$1\" = env ] && echo '.lib_dir = \"/zig/lib\",' || echo \"$@\"\n")
    File.chmod(0o755, path)
    before = ENV.fetch("CHATON_ZIG", nil)
    ENV["CHATON_ZIG"] = path
    yield
  ensure
    ENV["CHATON_ZIG"] = before
  end

  def metadata
    { "packages" => [package("ours", source: nil), package("linked", "LICENSE-MIT" => "Free."), package("builder"),
                     package("openssl-src", version: "3.0", "openssl/LICENSE.txt" => "Of C."), package("elsewhere"),
                     package("macro", kind: "proc-macro")],
      "resolve" => { "nodes" => [
        { "id" => "ours", "deps" => [dependency("linked"), dependency("macro"), dependency("builder", "build")] },
        { "id" => "linked", "deps" => [dependency("openssl-src", "build"), dependency("elsewhere", "dev")] },
        { "id" => "openssl-src", "deps" => [] }
      ] } }
  end

  def package(name, version: "1.0", kind: "lib", source: "registry", **files)
    files.each { |path, text| file("#{name}/#{path}", text) }
    { "id" => name, "name" => name, "version" => version, "license" => "MIT", "source" => source,
      "manifest_path" => File.join(@folder, name, "Cargo.toml"), "targets" => [{ "kind" => [kind] }] }
  end

  def dependency(name, kind = nil) = { "pkg" => name, "dep_kinds" => [{ "kind" => kind }] }
end
