# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/ceilings"
require "chaton/supervisor/memory_watch"
require_relative "memory_fakes"

# Ceilings over a fleet of two whose memory is what a test says.
class CeilingsCase < Minitest::Test
  include SupervisorFakes
  include MemoryFakes

  LIMIT = 100 * MIB

  def setup
    @kernel = Kernel.new
    @pid = 1000
    @orders = Hash.new { |all, child| all[child] = [] }
    @signals = Hash.new { |all, child| all[child] = [] }
    @now_s = Chaton::Supervisor::EventLoop.now_s
  end

  private

  def build(size: 40, starting: false, every_s: 2.0, **given)
    build_fleet(workers: 2)
    limits = limits_of(**given)
    @watch = Chaton::Supervisor::MemoryWatch.new(@fleet, limits, every_s: every_s, parents: -> { [] },
                                                                 kernel: @kernel)
    @ceilings = Chaton::Supervisor::Ceilings.new(@fleet, limits, watch: @watch, board: @board, log: @log)
    @fleet.children.each { |child| arrive(child, size: size, starting: starting) }
  end

  # A child becomes ready.
  def arrive(child, size: 40, **known)
    child.forked(@pid += 1, @now_s)
    orders = @orders[child]
    signals = @signals[child]
    child.define_singleton_method(:signal) { |name| signals << name }
    child.define_singleton_method(:order) { |order| orders << order }
    use(child, size)
    make_ready(child)
    turn(**known)
  end

  def leave(child)
    lose(child, "exit 0")
    turn
    tick
    arrive(newest) if newest.state == :asked
  end

  def use(child, pss, own: pss)
    @kernel.set(child.pid, pss * MIB, own: own * MIB)
  end

  # Slowly, so that there is time to see whether trimming helps.
  def grow(child)
    [89, 104].each do |size|
      use(child, size)
      look
    end
  end

  # The next look is due.
  def look(**known)
    @now_s += 2
    turn(**known)
  end

  def turn(**known)
    @watch.tick(@now_s)
    @ceilings.steer(@now_s, **known)
  end

  def status = @ceilings.to_h(@now_s)
  def child(index) = @fleet.children[index]
  def newest = @origin.asked.last.first
end
