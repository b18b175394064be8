# frozen_string_literal: true

require_relative "../native"
require_relative "event_loop"

module Chaton
  class Supervisor
    # Reads the memory use of the processes of the tree. A source of the event loop: with ceilings it reads every
    # `check_every_s`, and at once when a worker has become ready; without, only when the status is asked for.
    #
    # Resident memory takes microseconds to read and is never less than the figure that counts (PSS). The exact figure
    # needs a walk over all mappings, so it is read only where it may matter.
    class MemoryMonitor
      # Share of a ceiling from which on the exact figure is read.
      CLOSE = 0.8
      # Greatest age of a figure that `chaton status` shows.
      SHOWN_S = 2.0

      # One child's memory: `usage` has its figures in bytes (`:rss`, `:pss`, `:private`, `:shared`, `:swap`), read at
      # `read_at_s`; `fresh` those it had when it became ready; `trimmed_at_s` when it was last asked to trim, and
      # `trims` how often since it was far from its ceiling; `before` the previous size and its time, and `rise` the
      # growth since then (bytes/s).
      ChildMemory = Struct.new(:usage, :read_at_s, :fresh, :trimmed_at_s, :trims, :before, :rise)

      # @param parents [#call] → pids of the tree that are not workers: the supervisor, preloaders
      # @param kernel [#process, #resident, #cgroup] reads the figures
      def initialize(worker_set, limits, every_s:, parents: -> { [Process.pid] }, kernel: Native::Memory)
        @worker_set = worker_set
        @limits = limits
        @every_s = every_s
        @parents = parents
        @kernel = kernel
        @memories = {}.compare_by_identity
        @next_at_s = EventLoop.now_s
        @total = 0
        @updated = false
        @newcomers = []
      end

      def ios = []

      def due_at
        return unless @limits.on?

        unread.empty? ? @next_at_s : EventLoop.now_s
      end

      # Reads what is due.
      def tick(now_s)
        return unless @limits.on?

        unread.each { |child| read_first(child, now_s) }
        read_all(now_s) if now_s >= @next_at_s
      end

      # Moves the next reading to this time if it is later.
      def read_by(at_s)
        @next_at_s = [@next_at_s, at_s].min
      end

      # @return [Boolean] whether there was a reading since the last call
      def updated? = @updated.tap { @updated = false }

      # @return [Array<Child>] those that became ready and were read since the last call
      def newcomers = @newcomers.tap { @newcomers = [] }

      # @return [ChildMemory]
      def memory_of(child) = @memories[child] ||= ChildMemory.new

      # @param child [Child] that was read
      # @return [Integer] bytes it will have two readings from now if it keeps growing as it does
      def ahead(child)
        memory = memory_of(child)
        memory.usage[:pss] + ([memory.rise.to_f, 0.0].max * @every_s * 2).floor
      end

      # @return [Hash{Symbol=>Integer}, nil] its figures, not older than {SHOWN_S}
      def figures(child, now_s)
        return unless child.pid

        memory = memory_of(child)
        read(child, now_s) if memory.usage.nil? || now_s - memory.read_at_s > SHOWN_S
        memory.usage
      end

      # @return [Integer] bytes that all processes of the tree use together: their PSS, or their resident memory where
      #   that is far below the ceiling; as of the last reading
      attr_reader :total

      # @return [Hash{Symbol=>Object}, nil] of the container, see Native::Memory.cgroup; as of the last reading
      attr_reader :container

      # @return [Integer] the same total, read now
      def total_now(now_s)
        forget_ended
        parents_pss + children.sum { |child| figures(child, now_s)&.fetch(:pss).to_i }
      end

      private

      def children = @worker_set.children.select(&:pid)

      # Children that have become ready since the last reading.
      def unread = children.select { |child| child.ready? && memory_of(child).fresh.nil? }

      def read_first(child, now_s)
        # A child that has just ended has no figures and is not tried again.
        memory_of(child).fresh = read(child, now_s) || {}
        @newcomers << child
      end

      def read_all(now_s)
        @next_at_s = now_s + @every_s
        @updated = true
        forget_ended
        @container = @kernel.cgroup if @limits.container
        residents = children.to_h { |child| [child, @kernel.resident(child.pid).to_i] }
        bound = residents.each_value.sum + @parents.call.sum { |pid| @kernel.resident(pid).to_i }
        all = close?(bound, @limits.tree) || close?(@container&.fetch(:current), @limits.container)
        residents.each { |child, resident| read_if_close(child, resident, all, now_s) }
        @total = all ? parents_pss + residents.keys.sum { |child| pss_of(child) } : bound
      end

      def forget_ended = @memories.select! { |child, _| @worker_set.children.include?(child) }

      # Far from any ceiling, resident memory is enough.
      def read_if_close(child, resident, all, now_s)
        ceilings = [@limits.soft(child.index), @limits.hard]
        return read(child, now_s) if all || ceilings.any? { |ceiling| close?(resident, ceiling) }

        memory = memory_of(child)
        memory.usage = nil
        memory.read_at_s = now_s
        memory.before = [resident, now_s]
      end

      def close?(bytes, ceiling) = !bytes.nil? && !ceiling.nil? && bytes >= ceiling * CLOSE

      def pss_of(child) = memory_of(child).usage&.fetch(:pss).to_i

      def parents_pss = @parents.call.sum { |pid| usage_of(pid)&.fetch(:pss).to_i }

      def read(child, now_s)
        memory = memory_of(child)
        memory.read_at_s = now_s
        memory.usage = usage_of(child.pid)
        measure_rise(memory, now_s) if memory.usage
        memory.usage
      end

      def measure_rise(memory, now_s)
        bytes, at_s = memory.before
        # The time since the previous reading may be too short, if the status was asked for just before.
        return if at_s && now_s - at_s < @every_s / 2

        memory.rise = (memory.usage[:pss] - bytes) / (now_s - at_s) if at_s
        memory.before = [memory.usage[:pss], now_s]
      end

      # Where the kernel does not tell the parts, resident memory is used; {MemoryLimits} warns about that.
      def usage_of(pid)
        parts = @kernel.process(pid)
        return parts if parts

        resident = @kernel.resident(pid)
        resident && { rss: resident, pss: resident, private: resident, shared: 0, swap: 0 }
      end
    end
  end
end
