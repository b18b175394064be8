# frozen_string_literal: true

require "test_helper"
require "open3"
require "tmpdir"

class RubyVersionTest < Minitest::Test
  # A library that is loaded first gives Ruby another version of its binary interface.
  OTHER_RUBY = "const int ruby_api_version[3] = { 9, 8, 0 };"

  def test_an_extension_that_was_compiled_for_another_ruby_is_not_loaded
    Dir.mktmpdir("chaton-version") do |dir|
      library = File.join(dir, "other_ruby.so")
      _, status = Open3.capture2e("cc", "-shared", "-o", library, "-xc", "-", stdin_data: OTHER_RUBY)
      assert_predicate status, :success?
      output, status = Open3.capture2e({ "LD_PRELOAD" => library }, "ruby", "-Ilib", "-e", "require 'chaton/native'")
      refute_predicate status, :success?
      assert_match(/compiled for Ruby #{RUBY_VERSION[/\d+\.\d+/]}, and this is 9\.8\).*`rake compile`/, output)
    end
  end
end
