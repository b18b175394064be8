# frozen_string_literal: true

require "test_helper"
require "open3"
require "rbconfig"

class ExtraTest < Minitest::Test
  LIB = File.expand_path("../../../lib", __dir__)
  SCRIPT = 'require "chaton"; Chaton::Jobs::Client; print Digest.const_defined?(:SHA256, false)'

  # Left to its first use it is loaded by many threads at once, and Ruby refuses some of them.
  def test_the_digest_class_is_loaded_at_once
    assert_equal ["true", ""], Open3.capture3(RbConfig.ruby, "-I", LIB, "-e", SCRIPT).first(2)
  end
end
