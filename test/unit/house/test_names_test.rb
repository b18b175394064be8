# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../../rakelib/support/test_names"

class TestNamesTest < Minitest::Test
  def setup
    @dir = Dir.mktmpdir("chaton-names")
    %w[unit/a integration/streams/log integration/web/accept].each do |name|
      path = File.join(@dir, "#{name}_test.rb")
      FileUtils.mkdir_p(File.dirname(path))
      FileUtils.touch(path)
    end
    @names = TestNames.new(%w[unit integration], root: @dir)
  end

  def teardown = FileUtils.remove_entry(@dir)

  def test_parts_and_files_are_known
    assert_nil @names.problem(%w[unit integration/web/accept])
    assert_equal File.join(@dir, "integration/web/accept_test.rb"), @names.file("integration/web/accept")
    assert_nil @names.file("unit")
  end

  def test_an_unknown_name_gets_a_similar_one_or_the_parts
    assert_match(/'unti'; did you mean 'unit'\?/, @names.problem(%w[unti]))
    assert_match(%r{did you mean 'integration/web/accept'\?}, @names.problem(%w[unit integration/web/accpt]))
    assert_match(/'zzz'; there are unit, integration$/, @names.problem(%w[zzz]))
  end

  def test_a_file_belongs_to_its_folder_and_streams_are_a_part_of_their_own
    assert_equal "integration", @names.part_of("integration/web/accept")
    assert_equal "streams", @names.part_of("integration/streams/log")
  end
end
