# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "chaton/config"
require "chaton/web/public_files"
require "rack"

class PublicFilesTest < Minitest::Test
  def test_a_directory_of_the_configuration_is_served_with_the_types_of_rack
    Dir.mktmpdir do |root|
      Dir.mkdir(File.join(root, "public"))
      settings = settings_of(root, "static 'public'\n static_index 'index.html'")
      assert_equal File.join(File.realpath(root), "public"), File.realpath(settings[:root])
      assert_equal ["index.html", false, false, []], settings.values_at(:index, :html, :https_only, :headers)
      assert_equal [16 << 20, 64 << 10, 0.0], settings.values_at(:memory_bytes_max, :file_bytes_max, :fresh_s)
      assert_equal "text/css", settings[:types][".css"]
    end
  end

  def test_nothing_is_served_unless_a_directory_is_named
    Dir.mktmpdir do |root|
      ["static :auto", "static :off", "static false", ""].each do |line|
        assert_nil settings_of(root, line), line
      end
    end
  end

  private

  def settings_of(root, lines)
    File.write(File.join(root, "chaton.rb"), "web do\n #{lines}\nend")
    plan = Chaton::Config.load({ config_file: File.join(root, "chaton.rb"), directory: root }, env: {}, root: root)
    Chaton::Web::PublicFiles.new(plan, -> {}, log: nil).settings
  end
end
