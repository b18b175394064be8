# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/ceiling_enforcer"
require "chaton/supervisor/memory_monitor"
require_relative "memory_fakes"

# CeilingEnforcer over two workers whose memory is what a test says.
class CeilingEnforcerCase < Minitest::Test
  include SupervisorFakes
  include MemoryFakes

  LIMIT = 100 * MIB

  def setup
    @kernel = Kernel.new
    @pid = 1000
    @commands = Hash.new { |all, child| all[child] = [] }
    @signals = Hash.new { |all, child| all[child] = [] }
    @now_s = Chaton::Supervisor::EventLoop.now_s
  end

  private

  def build(size: 40, starting: false, every_s: 2.0, **given)
    build_worker_set(workers: 2)
    limits = limits_of(**given)
    @monitor = Chaton::Supervisor::MemoryMonitor.new(@worker_set, limits, every_s: every_s, parents: -> { [] },
                                                                          kernel: @kernel)
    @ceilings = Chaton::Supervisor::CeilingEnforcer.new(@worker_set, limits, monitor: @monitor, scoreboard: @scoreboard,
                                                                             log: @log)
    @worker_set.children.each { |child| arrive(child, size: size, starting: starting) }
  end

  # A child becomes ready.
  def arrive(child, size: 40, **known)
    child.forked(@pid += 1, @now_s)
    commands = @commands[child]
    signals = @signals[child]
    child.define_singleton_method(:signal) { |name| signals << name }
    child.define_singleton_method(:command) { |command| commands << command }
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
    @monitor.tick(@now_s)
    @ceilings.update(@now_s, **known)
  end

  def status = @ceilings.to_h(@now_s)
  def child(index) = @worker_set.children[index]
  def newest = @forker.asked.last.first
end
