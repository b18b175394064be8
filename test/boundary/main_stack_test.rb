# frozen_string_literal: true

require "test_helper"
require "open3"

class MainStackTest < Minitest::Test
  # Calls through C code use the machine's stack. Less than the limit of nested calls, which raises SystemStackError.
  PROGRAM = <<~RUBY
    require "chaton/native"
    def deep(levels) = levels.zero? ? 0 : [levels - 1].sum { |left| deep(left) }
    def resident_kb = File.read("/proc/self/smaps")[/\\[stack\\]\\n.*?^Rss:\\s+(\\d+)/m, 1].to_i
    deep(2_000)
    before = resident_kb
    released = Chaton::Native::Memory.release_main_stack
    after = resident_kb
    deep(2_000)
    elsewhere = Thread.new { Chaton::Native::Memory.release_main_stack }.value
    puts [before, released, after, elsewhere].join(" ")
  RUBY

  def test_the_unused_part_is_given_back_and_can_be_used_again
    output, status = Open3.capture2e(RbConfig.ruby, "-Ilib", "-e", PROGRAM)
    assert_predicate status, :success?, output
    before, released, after, elsewhere = output.split.map { |number| Integer(number) }
    assert_operator released, :>, 0
    assert_operator after, :<, before
    # What is kept below the current frame, and the frames above it.
    assert_operator after, :<=, 512
    assert_equal 0, elsewhere
  end
end
