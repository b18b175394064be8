# frozen_string_literal: true

require "test_helper"
require "open3"
require "tmpdir"

class ExtconfTest < Minitest::Test
  EXTCONF = File.expand_path("../../../ext/chaton/extconf.rb", __dir__)

  def test_nothing_is_compiled_on_macos_and_the_gem_installs
    Dir.mktmpdir do |folder|
      script = "RbConfig::CONFIG['host_os'] = 'darwin23'; load #{EXTCONF.inspect}"
      output, status = Open3.capture2e({ "CARGO" => "/nonexistent" }, RbConfig.ruby, "-rrbconfig", "-e", script,
                                       chdir: folder)

      assert_predicate status, :success?
      assert_equal "Chaton serves on Linux: nothing is compiled on darwin23. Use Puma for development here.\n", output
      # As RubyGems calls it.
      %w[clean all install].each do |target|
        made, status = Open3.capture2e("make", "DESTDIR=", "sitearchdir=#{folder}/installed", target, chdir: folder)

        assert_predicate status, :success?, made
      end
      assert_equal ["Makefile"], Dir.children(folder)
    end
  end
end
