# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/controller"
require_relative "fakes"

class QuietTest < Minitest::Test
  include SupervisorFakes

  def setup
    build_worker_set(workers: 2)
    @signals = Hash.new { |all, child| all[child] = [] }.compare_by_identity
    @first, @second = @worker_set.children.dup
    listen(@first)
    listen(@second)
    make_ready(@first)
    @quiet = Chaton::Supervisor::QuietMode.new(@worker_set)
  end

  def test_each_worker_gets_the_signal_once_when_it_is_ready
    @quiet.begin("TSTP")
    assert_equal [%w[TSTP], []], sent
    make_ready(@second)
    2.times { @quiet.signal_new_workers }
    assert_equal [%w[TSTP], %w[TSTP]], sent
    2.times { @quiet.begin("USR1") }
    assert_equal [%w[TSTP USR1], %w[TSTP USR1]], sent
  end

  def test_a_replacement_gets_the_signal_too
    @quiet.begin("USR1")
    lose(@first)
    tick
    listen(@first = @forker.asked.last.first)
    make_ready(@first)
    @quiet.signal_new_workers
    assert_equal [%w[USR1], []], sent
  end

  def test_no_signal_is_sent_before_the_beginning_and_after_the_end
    @quiet.signal_new_workers
    @quiet.begin("USR1")
    @quiet.end
    make_ready(@second)
    @quiet.signal_new_workers
    assert_equal [%w[USR1], []], sent
  end

  private

  def listen(child)
    signals = @signals[child]
    child.define_singleton_method(:signal) { |name| signals << name }
  end

  def sent = [@first, @second].map { |child| @signals[child] }
end
