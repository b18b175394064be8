# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

# How exe/chaton finds its library and the application's gems.
class ExeTest < Minitest::Test
  EXE = File.expand_path("../../../exe/chaton", __dir__)
  CONFIG = <<~RUBY
    require "uri"
    print [URI::VERSION, ENV.values_at("BUNDLE_GEMFILE", "RUBYOPT")].inspect
    $stdout.flush
    exit!
  RUBY

  def setup
    @root = File.realpath(Dir.mktmpdir("chaton-exe"))
    write("config/chaton.rb", CONFIG)
  end

  def teardown
    FileUtils.remove_entry(@root)
  end

  def test_a_checkout_needs_no_load_path
    assert_match(/\Achaton \d/, run_exe("--version"))
  end

  # A gem of Ruby's own that the command line loads, too.
  def test_the_versions_of_the_gemfile_are_used
    bundle
    assert_equal '["9.9.9", [nil, nil]]', run_exe("check")
  end

  def test_a_gemfile_without_a_lock_is_left_alone
    bundle
    File.delete(File.join(@root, "Gemfile.lock"))
    assert_match(/\A\["(?!9\.9\.9)\d/, run_exe("check"))
    refute_path_exists File.join(@root, "Gemfile.lock")
  end

  def test_a_bundle_that_is_not_installed_is_named
    write("Gemfile", "gem \"chaton-not-there\"\n")
    write("Gemfile.lock", "GEM\n  specs:\n    chaton-not-there (1.0)\n\nPLATFORMS\n  ruby\n\nDEPENDENCIES\n  " \
                          "chaton-not-there\n")
    assert_match(/\Achaton: the bundle of #{@root}.Gemfile is not used, .*chaton-not-there/, run_exe("--version"))
  end

  private

  def bundle
    write("Gemfile", "gem \"uri\", path: \"vendor\"\n")
    write("vendor/uri.gemspec", "Gem::Specification.new { |spec| spec.name = 'uri'; spec.version = '9.9.9'; " \
                                "spec.summary = 'x'; spec.authors = ['x'] }\n")
    write("vendor/lib/uri.rb", "module URI; VERSION = '9.9.9'; end\n")
    write("Gemfile.lock", "PATH\n  remote: vendor\n  specs:\n    uri (9.9.9)\n\nPLATFORMS\n  ruby\n\nDEPENDENCIES\n  " \
                          "uri!\n")
  end

  def write(path, text)
    file = File.join(@root, path)
    FileUtils.mkdir_p(File.dirname(file))
    File.write(file, text)
  end

  def run_exe(*words)
    variables = { "BUNDLE_GEMFILE" => nil, "RUBYOPT" => nil, "RUBYLIB" => nil, "CHATON_CONFIG" => nil }
    Open3.capture2e(variables, RbConfig.ruby, EXE, *words, chdir: @root).first
  end
end
