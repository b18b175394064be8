# frozen_string_literal: true

require_relative "ceiling_policy"
require_relative "ceiling_report"
require_relative "recycling"
require_relative "rest"

module Chaton
  class Supervisor
    # Keeps workers below their ceilings: takes what {MemoryWatch} has read to {CeilingPolicy}, carries out what it
    # decides, and counts. One worker is replaced at a time; one that is stopped at once does not wait for that.
    class Ceilings
      # What became of a worker's number: how often it was recycled, how often stopped at once, why the last time.
      Past = Struct.new(:recycles, :hards, :reason)

      # @return [String, nil] why the first workers cannot keep below their ceilings
      attr_reader :refusal

      # @param fleet [Fleet]
      # @param limits [MemoryLimits]
      # @param watch [MemoryWatch]
      # @param board [#read]
      # @param log [Telemetry::Log]
      def initialize(fleet, limits, watch:, board:, log:)
        @fleet = fleet
        @limits = limits
        @watch = watch
        @board = board
        @report = CeilingReport.new(log)
        @policy = CeilingPolicy.new(limits)
        @rest = Rest.new
        @past = Hash.new { |all, index| all[index] = Past.new(0, 0) }
        @replacing = []
        @ended = []
        @doubted = []
      end

      # Goes on with what was begun, and decides anew after a look.
      #
      # @param now_s [Float]
      # @param starting [Boolean] whether the first workers are still awaited
      # @param held [Boolean] whether all workers are being replaced anyway; meanwhile they only trim
      # @return [void]
      def steer(now_s, starting: false, held: false)
        advance(now_s)
        @watch.newcomers.each { |child| greet(child, now_s, starting) }
        return unless @watch.looked?

        @doubted.reject! { |child| cleared?(child) }
        judge(now_s, busy: busy? || @rest.left_s(now_s).positive?, held: held)
      end

      # @param child [Child]
      # @return [Boolean] whether it is to be replaced before others
      def urgent?(child)
        bytes = @watch.view(child).usage&.fetch(:pss)
        soft = @limits.soft(child.index)
        !bytes.nil? && !soft.nil? && bytes >= soft
      end

      # @return [Boolean] whether a worker is being replaced
      def busy? = @replacing.any?

      # @return [Boolean] whether it is open if the first workers fit below their ceilings
      def doubts? = @doubted.any?

      # @param now_s [Float]
      # @return [Hash{Symbol=>Object}] for `status`; sizes in bytes
      def to_h(now_s)
        { **@limits.to_h, total: @watch.total_now(now_s), recycled_total: @past.each_value.sum(&:recycles),
                          hard_total: @past.each_value.sum(&:hards), recycling: @replacing.map(&:to_h) }
      end

      # @param child [Child]
      # @param now_s [Float]
      # @return [Hash{Symbol=>Object}] of this worker, for `status`; sizes in bytes
      def of(child, now_s)
        past = @past.fetch(child.index) { Past.new(0, 0) }
        { **(@watch.figures(child, now_s) || {}), soft: @limits.soft(child.index), recycles: past.recycles,
                                                  hards: past.hards, reason: past.reason }
      end

      private

      def advance(now_s)
        @ended.reject!(&:dead?)
        @replacing.each(&:tick)
        over, @replacing = @replacing.partition { |one| !one.running? }
        over.each { |one| conclude(one, now_s) }
      end

      def conclude(recycling, now_s)
        done = recycling.state == :done
        done ? @rest.worked : @rest.failed(now_s)
        return @report.abandoned(recycling, rest_s: @rest.left_s(now_s)) unless done

        @past[recycling.child.index].recycles += 1 unless recycling.at_once?
        @report.recycled(recycling)
      end

      # A worker has become ready.
      def greet(child, now_s, starting)
        soft = @limits.soft(child.index) or return
        usage = @watch.view(child).fresh
        fits = usage.fetch(:pss, 0) < soft
        @rest.ready(child.index, fits: fits)
        return if fits
        return doubt(child, now_s) if starting

        @report.too_large(child, usage, soft, rest_s: @rest.age_s(child.index))
      end

      # What it left over from booting may be garbage.
      def doubt(child, now_s)
        relieve(child, now_s)
        @doubted << child
      end

      def cleared?(child)
        return true if child.dead?

        view = @watch.view(child)
        return false if view.read_at_s < view.relieved_at_s + CeilingPolicy::RELIEF_TAKES_S

        # Without figures its resident memory alone was far from the ceiling.
        @refusal ||= @limits.refusal(view.usage[:pss], @limits.soft(child.index)) if view.usage
        true
      end

      def judge(now_s, busy:, held:)
        children = @fleet.children.select { |child| @watch.view(child).usage }
        forget_reliefs
        tree = CeilingPolicy::Tree.new(total: @watch.total, current: @watch.container&.fetch(:current),
                                       container: @limits.container)
        workers = children.map { |child| reading(child, now_s) }
        decision = @policy.decide(workers, tree, busy: busy, held: held)
        carry_out(decision, children[workers.index(decision.worker)], now_s) if decision
        @report.cramped(tree.total, @limits.tree, is: @policy.cramped?(workers, tree))
      end

      # Who is far from its ceiling has been relieved for good.
      def forget_reliefs
        @fleet.children.each do |child|
          view = @watch.view(child)
          view.reliefs = 0 unless @policy.close?(child.index, view.usage&.fetch(:pss))
        end
      end

      def reading(child, now_s)
        view = @watch.view(child)
        gauges = @board.read(child.slot)
        CeilingPolicy::Worker.new(
          index: child.index, state: child.state, age_s: now_s - child.forked_at_s, pss: view.usage[:pss],
          own: view.usage[:private], fresh: view.fresh&.fetch(:private, nil), ahead: @watch.ahead(child),
          in_flight: gauges.fetch(:running, 0) + gauges.fetch(:queued, 0),
          relieved_s: view.relieved_at_s && (view.read_at_s - view.relieved_at_s),
          reliefs: view.reliefs, rest_s: @rest.age_s(child.index), ending: @ended.include?(child)
        )
      end

      def carry_out(decision, child, now_s)
        case decision
        when CeilingPolicy::Relieve
          @report.relieved(child, decision.reason)
          relieve(child, now_s)
        when CeilingPolicy::Recycle then recycle(child, decision)
        when CeilingPolicy::Hard then stop_at_once(child, decision.reason, now_s)
        end
      end

      def relieve(child, now_s)
        view = @watch.view(child)
        view.relieved_at_s = now_s
        view.reliefs = view.reliefs.to_i + 1
        @watch.look_by(now_s + CeilingPolicy::RELIEF_SEEN_S)
        child.order({ do: "trim" })
      end

      def recycle(child, decision)
        seat = @fleet.seats.find { |one| one.child.equal?(child) }
        # No room on the board, or its number was taken away: the next look decides again.
        return unless seat && @fleet.room?

        decision.how = :only_one if @fleet.retires_first?(seat)
        @past[child.index].reason = decision.reason
        @report.begins(child, decision, @watch.view(child).usage)
        @replacing << Recycling.new(@fleet, seat, decision.how, reason: decision.reason)
      end

      def stop_at_once(child, reason, now_s)
        past = @past[child.index]
        past.hards += 1
        past.reason = reason
        @ended << child
        usage = @watch.view(child).usage
        # The next one would load no less: its end is a failed boot like any other.
        return child.refuse(@limits.refusal_of_boot(usage[:pss])) unless child.served?

        @report.hard(child, reason, usage, @board.read(child.slot))
        seat = @fleet.seats.find { |one| one.child.equal?(child) }
        return child.stop_now(now_s) if seat.nil? || provided?(seat)

        @replacing << Recycling.new(@fleet, seat, :retire_first, reason: reason, at_once: true)
      end

      # Whoever brought the successor on its way, or waits for the old one's end, goes on with that.
      def provided?(seat) = !seat.successor.nil? || @replacing.any? { |one| one.seat.equal?(seat) }
    end
  end
end
