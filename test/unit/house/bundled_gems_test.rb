# frozen_string_literal: true

require "test_helper"

# Under Bundler an application gets only the gems of its lock file, and a library that Ruby has made a gem is one of
# them: a file that requires one fails, unless the gem names it.
class BundledGemsTest < Minitest::Test
  ROOT = File.expand_path("../../..", __dir__)
  # Libraries that became gems in Ruby 3.4 and 4.0 (`Gem::BUNDLED_GEMS::SINCE`), those of Windows left out.
  GEMS = %w[abbrev base64 benchmark bigdecimal csv drb fiddle getoptlong irb logger mutex_m nkf observer ostruct pstore
            rdoc readline reline resolv-replace rinda syslog].freeze

  def test_each_that_is_required_is_a_dependency
    named = Gem::Specification.load(File.join(ROOT, "chaton.gemspec")).runtime_dependencies.map(&:name)
    files = Dir[File.join(ROOT, "lib/**/*.rb")]
    required = files.flat_map { |file| File.read(file).scan(/^\s*require "([\w-]+)/).flatten }
    assert_equal ["logger"], GEMS & required
    assert_empty (GEMS & required) - named
  end
end
