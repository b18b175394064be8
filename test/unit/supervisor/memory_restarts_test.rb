# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/memory_restarts"

class MemoryRestartsTest < Minitest::Test
  Restarts = Chaton::Supervisor::MemoryRestarts

  def test_the_first_life_knows_of_none
    assert_equal 0, Restarts.from_env({}).failures
    assert_equal 60.0, Restarts.from_env({}).age_s
  end

  def test_from_life_to_life_the_age_doubles_up_to_the_longest
    lives = [Restarts.from_env({})]
    7.times { lives << Restarts.from_env(lives.last.next(early: true).to_env) }
    assert_equal [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0], lives.map(&:age_s)
    assert_equal 0, Restarts.from_env(lives.last.next(early: false).to_env).failures
  end

  def test_it_holds_for_one_process_and_is_taken_away
    env = Restarts.new(3).to_env(7)
    assert_equal 3, Restarts.from_env(env.dup, pid: 7).failures
    assert_equal 0, Restarts.from_env(env.dup, pid: 8).failures
    Restarts.from_env(env, pid: 7)
    assert_empty env
    assert_equal 0, Restarts.from_env({ Restarts::VARIABLE => "what" }, pid: 7).failures
  end
end
