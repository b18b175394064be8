# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "tmpdir"
require "chaton/native_library"

class NativeLibraryTest < Minitest::Test
  COMPILE = "install the gem that is compiled here: `gem install chaton --platform ruby`, " \
            "or `force_ruby_platform: true` in the Gemfile."
  # What the dynamic linkers print.
  NOT_FOUND = "cannot load such file -- chaton/chaton_native"
  OF_GLIBC = "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.31' not found (required by " \
             "/gem/3.3/chaton_native.so) - /gem/3.3/chaton_native.so"
  OF_MUSL = "Error loading shared library ld-linux-x86-64.so.2: No such file or directory (needed by " \
            "/gem/3.3/chaton_native.so) - /gem/3.3/chaton_native.so"

  def setup
    @folder = Dir.mktmpdir
  end

  def teardown
    FileUtils.rm_rf(@folder)
  end

  def test_the_object_of_this_ruby_is_loaded_from_its_folder
    built("3.3", "3.4")

    assert_equal [File.join(@folder, "3.3/chaton_native.so")], requested("3.3")
  end

  def test_without_such_a_folder_it_is_found_in_the_load_path
    assert_equal ["chaton/chaton_native"], requested("3.3")
  end

  def test_a_gem_without_an_object_for_this_ruby_names_those_that_it_has
    built("3.10", "3.3", "3.1")

    assert_equal "This gem of Chaton is built for Ruby 3.1, 3.3, 3.10, and this is Ruby 3.2: #{COMPILE}",
                 failure("3.2", NOT_FOUND)
  end

  def test_an_old_c_library_is_named_with_the_one_that_is_needed
    built("3.3")

    assert_equal "This gem of Chaton needs the GNU C library 2.31 or newer, and this system has 2.17: #{COMPILE}",
                 failure("3.3", OF_GLIBC, glibc: "2.17")
  end

  def test_another_c_library_is_explained
    built("3.3")

    assert_equal "This gem of Chaton needs the GNU C library, and this system has another one (linux-musl): #{COMPILE}",
                 failure("3.3", OF_MUSL, glibc: nil, host_os: "linux-musl")
  end

  def test_another_processor_is_explained
    built("3.3")
    foreign = File.binread(RbConfig.ruby, 64)
    foreign[18..19] = "\xFE\xFE".b
    File.binwrite(File.join(@folder, "3.3/chaton_native.so"), foreign)

    # The linker of glibc does not see such a file at all.
    assert_equal "This gem of Chaton is built for another processor than #{RUBY_PLATFORM}: #{COMPILE}",
                 failure("3.3", "cannot open shared object file: No such file or directory")
  end

  def test_any_other_reason_is_the_linkers
    built("3.3")

    assert_equal "This gem of Chaton cannot be loaded (undefined symbol: rb_x): #{COMPILE}",
                 failure("3.3", "undefined symbol: rb_x")
  end

  def test_a_checkout_that_is_not_built_says_so
    assert_equal "Chaton's native extension is not built for this Ruby (#{NOT_FOUND}). Build it with `rake compile` " \
                 "in a checkout, or install the gem anew.", failure("3.3", NOT_FOUND)
  end

  def test_macos_is_for_development_with_puma
    library = Chaton::NativeLibrary.new(folder: @folder, host_os: "darwin23")

    error = assert_raises(Chaton::NativeLibrary::Unusable) { library.load { flunk "it is not there" } }
    assert_equal "Chaton serves on Linux, and this is darwin23: use Puma for development here, " \
                 "for example with `gem \"puma\", group: :development` in the Gemfile. Tests keep jobs and records " \
                 "in memory with Chaton::Testing.", error.message
  end

  def test_on_macos_chaton_is_required_without_its_native_part
    assert_equal "Chaton::Job", on_macos("-e", 'require "chaton"; print Chaton::Job').first
  end

  def test_on_macos_the_server_says_that_it_is_for_linux
    command = File.expand_path("../../exe/chaton", __dir__)
    output, error, status = on_macos("-e", "ARGV.replace(['serve']); load #{command.inspect}")

    assert_match(/\Achaton: Chaton serves on Linux, and this is darwin23: use Puma [^\n]+\n\z/, error)
    assert_equal ["", 1], [output, status.exitstatus]
  end

  private

  def built(*versions)
    versions.each do |version|
      FileUtils.mkdir_p(File.join(@folder, version))
      FileUtils.cp(RbConfig.ruby, File.join(@folder, version, "chaton_native.so"))
    end
  end

  def library(minor, host_os: "linux-gnu", glibc: "2.36")
    Chaton::NativeLibrary.new(folder: @folder, minor: minor, host_os: host_os, glibc: glibc)
  end

  def requested(minor)
    paths = []
    library(minor).load { |path| paths << path }
    paths
  end

  def failure(minor, message, **system)
    assert_raises(Chaton::NativeLibrary::Unusable) do
      library(minor, **system).load { raise LoadError, message }
    end.message
  end

  def on_macos(*arguments)
    File.write(File.join(@folder, "macos.rb"), 'RbConfig::CONFIG["host_os"] = "darwin23"')
    Open3.capture3(RbConfig.ruby, "-I", File.expand_path("../../lib", __dir__), "-rrbconfig",
                   "-r", File.join(@folder, "macos.rb"), *arguments)
  end
end
