# frozen_string_literal: true

require_relative "../native"
require_relative "event_loop"

module Chaton
  class Supervisor
    # Reads what the processes of the tree use. A source of the event loop: with ceilings it looks every
    # `check_every_s`, and at once when a worker has become ready; without, only when somebody asks for the status.
    #
    # Resident memory costs the kernel microseconds to tell and is never less than what counts (PSS), so the exact
    # figure, which costs a walk over all mappings, is only asked for where it could matter.
    class MemoryWatch
      # Share of a ceiling from which on the exact figure is read.
      CLOSE = 0.8
      # How old a figure may be that `chaton status` shows.
      SHOWN_S = 2.0

      # What is known about one child: its figures in bytes (`:rss`, `:pss`, `:private`, `:shared`, `:swap`) and when
      # they were read, those it had when it became ready, when it was last told to trim, and how often since it was far
      # from its ceiling; `before` is what it had the last time and when that was, `rise` how fast it grew since
      # (bytes/s).
      View = Struct.new(:usage, :read_at_s, :fresh, :relieved_at_s, :reliefs, :before, :rise)

      # @param fleet [Fleet]
      # @param limits [MemoryLimits]
      # @param every_s [Numeric]
      # @param parents [#call] → pids of the tree that are no workers: the supervisor, molds
      # @param kernel [#process, #resident, #cgroup] who tells
      def initialize(fleet, limits, every_s:, parents: -> { [Process.pid] }, kernel: Native::Memory)
        @fleet = fleet
        @limits = limits
        @every_s = every_s
        @parents = parents
        @kernel = kernel
        @views = {}.compare_by_identity
        @next_at_s = EventLoop.now_s
        @total = 0
        @looked = false
        @newcomers = []
      end

      # @return [Array<IO>]
      def ios = []

      # @return [Float, nil]
      def due_at
        return unless @limits.on?

        unseen.empty? ? @next_at_s : EventLoop.now_s
      end

      # Reads what is due.
      #
      # @param now_s [Float]
      # @return [void]
      def tick(now_s)
        return unless @limits.on?

        unseen.each { |child| see_first(child, now_s) }
        look(now_s) if now_s >= @next_at_s
      end

      # Looks then, if it would not do so before.
      #
      # @param at_s [Float]
      # @return [void]
      def look_by(at_s)
        @next_at_s = [@next_at_s, at_s].min
      end

      # @return [Boolean] whether it has looked since it was last asked
      def looked? = @looked.tap { @looked = false }

      # @return [Array<Child>] who has become ready and been read since it was last asked
      def newcomers = @newcomers.tap { @newcomers = [] }

      # @param child [Child]
      # @return [View]
      def view(child) = @views[child] ||= View.new

      # @param child [Child] that was read
      # @return [Integer] bytes it will have in two looks' time, should it go on as it does
      def ahead(child)
        seen = view(child)
        seen.usage[:pss] + ([seen.rise.to_f, 0.0].max * @every_s * 2).floor
      end

      # @param child [Child]
      # @return [Hash{Symbol=>Integer}, nil] its figures, not older than {SHOWN_S}
      def figures(child, now_s)
        return unless child.pid

        seen = view(child)
        read(child, now_s) if seen.usage.nil? || now_s - seen.read_at_s > SHOWN_S
        seen.usage
      end

      # @return [Integer] bytes that all processes of the tree use together: their PSS, or where that is known to be far
      #   from the ceiling, their resident memory; as of the last look
      attr_reader :total

      # @return [Hash{Symbol=>Object}, nil] of the container, see Native::Memory.cgroup; as of the last look
      attr_reader :container

      # @return [Integer] the same total, read now
      def total_now(now_s)
        forget
        parents_pss + children.sum { |child| figures(child, now_s)&.fetch(:pss).to_i }
      end

      private

      def children = @fleet.children.select(&:pid)

      # Who has become ready since the last look.
      def unseen = children.select { |child| child.ready? && view(child).fresh.nil? }

      def see_first(child, now_s)
        # One that has just gone is not waited for.
        view(child).fresh = read(child, now_s) || {}
        @newcomers << child
      end

      def look(now_s)
        @next_at_s = now_s + @every_s
        @looked = true
        forget
        @container = @kernel.cgroup if @limits.container
        residents = children.to_h { |child| [child, @kernel.resident(child.pid).to_i] }
        bound = residents.each_value.sum + @parents.call.sum { |pid| @kernel.resident(pid).to_i }
        all = close?(bound, @limits.tree) || close?(@container&.fetch(:current), @limits.container)
        residents.each { |child, resident| look_at(child, resident, all, now_s) }
        @total = all ? parents_pss + residents.keys.sum { |child| pss_of(child) } : bound
      end

      def forget = @views.select! { |child, _| @fleet.children.include?(child) }

      # Far from any ceiling there is nothing to decide about it.
      def look_at(child, resident, all, now_s)
        lines = [@limits.soft(child.index), @limits.hard]
        return read(child, now_s) if all || lines.any? { |line| close?(resident, line) }

        seen = view(child)
        seen.usage = nil
        seen.read_at_s = now_s
        seen.before = [resident, now_s]
      end

      def close?(bytes, line) = !bytes.nil? && !line.nil? && bytes >= line * CLOSE

      def pss_of(child) = view(child).usage&.fetch(:pss).to_i

      def parents_pss = @parents.call.sum { |pid| usage_of(pid)&.fetch(:pss).to_i }

      def read(child, now_s)
        seen = view(child)
        seen.read_at_s = now_s
        seen.usage = usage_of(child.pid)
        compare(seen, now_s) if seen.usage
        seen.usage
      end

      def compare(seen, now_s)
        bytes, at_s = seen.before
        # Within a short time, as when the status was asked for just before, a rise says nothing.
        return if at_s && now_s - at_s < @every_s / 2

        seen.rise = (seen.usage[:pss] - bytes) / (now_s - at_s) if at_s
        seen.before = [seen.usage[:pss], now_s]
      end

      # Where the kernel does not show the parts, the whole has to do; {Memory} has said so.
      def usage_of(pid)
        parts = @kernel.process(pid)
        return parts if parts

        resident = @kernel.resident(pid)
        resident && { rss: resident, pss: resident, private: resident, shared: 0, swap: 0 }
      end
    end
  end
end
