# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/compiled_cache"

class CompiledCacheTest < Minitest::Test
  PATH = File.join(CompiledCache::CHECKOUT, "tmp", "compiled_cache_test_#{Process.pid}.rb")
  KEPT = File.join(CompiledCache::FOLDER, PATH.tr("/", "%"))

  def teardown = [PATH, KEPT].each { |path| FileUtils.rm_f(path) }

  def test_code_is_kept_and_compiled_again_when_it_has_changed
    File.write(PATH, "puts [1, __FILE__ == ARGV.first, __LINE__].inspect")
    assert_equal ["[1, true, 1]\n", "[1, true, 1]\n"], [load, load]
    assert_path_exists KEPT
    File.write(PATH, "puts 2")
    assert_equal "2\n", load
  end

  def test_what_is_damaged_is_not_used
    File.write(PATH, "puts 1")
    load
    File.write(KEPT, "no code")
    File.utime(File.mtime(PATH), File.mtime(PATH), KEPT)
    assert_equal "1\n", load
  end

  def test_warnings_come_each_time
    File.write(PATH, "unused = 1\ndef self.some\n  one = 1\nend")
    2.times { assert_match(/unused variable - one/, load("-w")) }
  end

  def test_gems_and_what_ruby_loads_by_itself_are_there
    script = "print [Gem.respond_to?(:loaded_specs), defined?(DidYouMean), defined?(ErrorHighlight), " \
             "defined?(SyntaxSuggest)].inspect"
    without, *with = [{ "RUBYOPT" => nil }, {}, CompiledCache.variables].map do |env|
      Open3.capture2e(env, RbConfig.ruby, "-e", script).first
    end
    assert_equal [without] * 2, with
  end

  private

  # @return [String] what a process prints that loads the file
  def load(*options)
    script = "require #{PATH.dump}"
    Open3.capture2e(RbConfig.ruby, *options, "-e", script, PATH).first
  end
end
