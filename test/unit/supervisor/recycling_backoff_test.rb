# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/recycling"

class RecyclingBackoffTest < Minitest::Test
  def setup = @rest = Chaton::Supervisor::RecyclingBackoff.new

  def test_pauses_double_up_to_the_longest_and_end_with_a_success
    pauses = Array.new(9) do
      @rest.failed(100.0)
      @rest.left_s(100.0)
    end
    assert_equal [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0], pauses
    assert_equal 200.0, @rest.left_s(200.0)
    assert_equal 0.0, @rest.left_s(500.0)
    @rest.succeeded
    assert_equal 0.0, @rest.left_s(100.0)
    @rest.failed(100.0)
    assert_equal 5.0, @rest.left_s(100.0)
  end

  def test_one_too_large_from_the_start_must_grow_older_each_time
    ages = Array.new(8) do
      @rest.ready(3, fits: false)
      @rest.age_s(3)
    end
    assert_equal [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0], ages
    assert_equal 0.0, @rest.age_s(1), "others are not concerned"
    @rest.ready(3, fits: true)
    assert_equal 0.0, @rest.age_s(3)
  end
end
