# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "support/evidence"

# What the tests of streams rest on: it finds what is out of order, and what two had at once.
class EvidenceTest < Minitest::Test
  def setup
    @dir = Dir.mktmpdir("evidence")
    @evidence = Evidence.new(@dir)
  end

  def teardown = FileUtils.remove_entry(@dir)

  def test_an_older_record_that_comes_after_a_newer_one_is_out_of_order
    write("did 0 a 0 1 1.0", "did 1 a 2 1 1.1", "did 2 b 0 1 1.2", "did 3 a 1 1 1.3")
    assert_equal [%w[a 1]], @evidence.out_of_order.map { |entry| [entry.key, entry.value] }
  end

  def test_a_record_that_comes_again_is_not
    write("did 0 a 0 1 1.0", "did 1 a 1 1 1.1", "did 0 a 0 2 1.2", "did 1 a 1 2 1.3", "did 2 a 2 2 1.4")
    assert_empty @evidence.out_of_order
  end

  def test_two_processes_between_began_and_ended_share
    write("began -1 - - 1 1.0", "began -1 - - 2 1.5", "ended -1 - - 1 2.0", "ended -1 - - 2 2.5")
    assert_equal [[["events", 0], 1, 2]], @evidence.shared
  end

  def test_one_after_the_other_does_not
    write("began -1 - - 1 1.0", "ended -1 - - 1 2.0", "began -1 - - 2 2.5", "ended -1 - - 2 2.6")
    assert_empty @evidence.shared
  end

  def test_who_was_killed_held_it_until_its_last_sign_of_life
    write("began -1 - - 1 1.0", "did 0 a 0 1 1.2", "began -1 - - 2 1.5", "did 0 a 0 2 1.6", "ended -1 - - 2 1.9")
    assert_empty @evidence.shared
    write("did 1 a 1 1 1.7")
    assert_equal [[["events", 0], 1, 2]], @evidence.shared
  end

  def test_a_line_that_is_not_whole_is_read_later
    write("did 0 a 0 1 1.0")
    File.write(path, "did 1 a 1", mode: "a")
    assert_equal 1, @evidence.count
    File.write(path, " 1 1.1\n", mode: "a")
    assert_equal %w[0 1], @evidence.values
    assert_equal({ ["events", 0] => [0, 1] }, @evidence.offsets)
  end

  def test_how_many_are_in_at_once
    write("in 0 a 0 1 1.0", "in 1 b 0 1 1.1", "out 0 a 0 1 1.2", "in 2 a 1 1 1.3", "out 1 b 0 1 1.4")
    assert_equal 2, @evidence.together_max(&:place)
    assert_equal 1, @evidence.together_max(&:key)
  end

  private

  def path = File.join(@dir, "events@0")
  def write(*lines) = File.write(path, lines.map { |line| "#{line}\n" }.join, mode: "a")
end
