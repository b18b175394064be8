# frozen_string_literal: true

require "test_helper"
require "chaton/ruby_release"

class RubyReleaseTest < Minitest::Test
  NEWER = "9.9.0"

  def release = Chaton::RubyRelease

  def test_a_release_that_was_tried_uses_everything_and_gives_no_warning
    ["3.1.2", "3.3.8", "4.0.5"].each do |version|
      assert release.unstable_calls?(version, {}), version
      assert_empty release.warnings(version, {}), version
    end
  end

  def test_a_newer_release_gets_one_warning_that_names_all_that_is_off
    ["4.1.0", "4.10.0", NEWER].each do |version|
      refute release.unstable_calls?(version, {}), version
      warning, = warnings = release.warnings(version, {})
      assert_equal 1, warnings.size
      ["Ruby #{version} is newer than 4.0", "the tracer", "the preempter", "CHATON_UNTRIED_RUBY=1"]
        .each { |part| assert_includes warning, part }
    end
  end

  def test_a_variable_switches_everything_on
    assert release.unstable_calls?(NEWER, { "CHATON_UNTRIED_RUBY" => "1" })
    assert_empty release.warnings(NEWER, { "CHATON_UNTRIED_RUBY" => "1" })
  end

  def test_threads_that_share_native_threads_are_refused_where_they_cannot_be_kept_apart
    error = assert_raises(Chaton::ConfigError) { release.warnings("3.3.8", { "RUBY_MN_THREADS" => "1" }) }
    assert_match(/RUBY_MN_THREADS=1 cannot be used with Ruby 3.3.8: .* Unset the variable/, error.message)
    assert_empty release.warnings("3.3.8", { "RUBY_MN_THREADS" => "0" })
    ["3.1.2", "3.4.1", "4.0.5"].each do |version|
      assert_empty release.warnings(version, { "RUBY_MN_THREADS" => "1" }), version
    end
  end
end
