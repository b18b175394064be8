# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/quiet"
require_relative "fakes"

class QuietTest < Minitest::Test
  include SupervisorFakes

  def setup
    build_fleet(workers: 2)
    @heard = Hash.new { |all, child| all[child] = [] }.compare_by_identity
    @first, @second = @fleet.children.dup
    listen(@first)
    listen(@second)
    make_ready(@first)
    @quiet = Chaton::Supervisor::Quiet.new(@fleet)
  end

  def test_who_is_ready_is_told_once_and_who_boots_when_it_is
    @quiet.ask("TSTP")
    assert_equal [%w[TSTP], []], told
    make_ready(@second)
    2.times { @quiet.tell }
    assert_equal [%w[TSTP], %w[TSTP]], told
    2.times { @quiet.ask("USR1") }
    assert_equal [%w[TSTP USR1], %w[TSTP USR1]], told
  end

  def test_who_comes_in_place_of_another_is_told_too
    @quiet.ask("USR1")
    lose(@first)
    tick
    listen(@first = @origin.asked.last.first)
    make_ready(@first)
    @quiet.tell
    assert_equal [%w[USR1], []], told
  end

  def test_without_being_asked_or_after_it_was_lifted_nobody_is_told
    @quiet.tell
    @quiet.ask("USR1")
    @quiet.lift
    make_ready(@second)
    @quiet.tell
    assert_equal [%w[USR1], []], told
  end

  private

  def listen(child)
    heard = @heard[child]
    child.define_singleton_method(:signal) { |name| heard << name }
  end

  def told = [@first, @second].map { |child| @heard[child] }
end
