# frozen_string_literal: true

require "test_helper"
require "open3"
require "tmpdir"

class RubyVersionTest < Minitest::Test
  # A Ruby that is not released asks a library for the version of its binary interface.
  ABI = RbConfig::CONFIG["ruby_version"][/\+(\d+)/, 1]
  # Replaces a constant of Ruby, and changes it when it is required: Ruby itself reads it at its start.
  OTHER_RUBY = <<~C.freeze
    int ruby_api_version[3] = { #{RbConfig::CONFIG["ruby_version"][/[\d.]+/].tr(".", ",")} };
    #{"unsigned long long ruby_abi_version(void) { return #{ABI}; }" if ABI}
    void Init_other_ruby(void) { ruby_api_version[0] = 9; ruby_api_version[1] = 8; }
  C

  def test_an_extension_that_was_compiled_for_another_ruby_is_not_loaded
    Dir.mktmpdir("chaton-version") do |dir|
      library = File.join(dir, "other_ruby.so")
      _, status = Open3.capture2e("cc", "-shared", "-fPIC", "-o", library, "-xc", "-", stdin_data: OTHER_RUBY)
      assert_predicate status, :success?
      command = [RbConfig.ruby, "-Ilib", "-r", library, "-e", "require 'chaton/native'"]
      output, status = Open3.capture2e({ "LD_PRELOAD" => library }, *command)
      refute_predicate status, :success?
      assert_match(/compiled for Ruby #{RUBY_VERSION[/\d+\.\d+/]}, and this is 9\.8\).*`rake compile`/, output)
    end
  end
end
