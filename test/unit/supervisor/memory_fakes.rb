# frozen_string_literal: true

require "chaton/config/settings"
require "chaton/supervisor/memory_limits"
require_relative "fakes"

# Stand-ins for what memory is read from.
module MemoryFakes
  MIB = 1 << 20

  # What the kernel would tell: bytes by pid.
  class Kernel
    attr_accessor :group
    attr_reader :asked

    def initialize
      @usages = {}
      @asked = []
    end

    def set(pid, pss, own: pss, rss: pss)
      @usages[pid] = { rss: rss, pss: pss, private: own, shared: rss - own, swap: 0 }
    end

    def process(pid)
      @asked << pid
      @usages[pid]
    end

    def resident(pid) = @usages[pid]&.fetch(:rss)

    def cgroup = @group
  end

  private

  def memory_settings(**given)
    defaults = { limit: :auto, limit_tree: :auto, limit_hard: nil, check_every_s: 2.0 }
    Chaton::Config::MemorySettings.new(**defaults, **given)
  end

  def limits_of(container: nil, **given)
    Chaton::Supervisor::MemoryLimits.new(memory_settings(**given), container: container)
  end
end
