# frozen_string_literal: true

require "test_helper"
require "open3"
require "tmpdir"

# The commands in bin/.
class CommandsTest < Minitest::Test
  ROOT = File.expand_path("../../..", __dir__)

  def test_each_command_explains_itself_without_doing_anything
    %w[bench demo matrix soak test].each do |name|
      output, status = Open3.capture2e("#{ROOT}/bin/#{name}", "--help", chdir: Dir.tmpdir)
      assert_predicate status, :success?, output
      assert_includes output, "  bin/#{name} "
      refute_match(/^#|compiling|set -e/, output)
    end
  end
end
