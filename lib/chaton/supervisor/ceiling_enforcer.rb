# frozen_string_literal: true

require_relative "../telemetry/size"
require_relative "ceiling_policy"
require_relative "event_loop"
require_relative "recycling"

module Chaton
  class Supervisor
    # Keeps workers below their memory ceilings: passes the readings of {MemoryMonitor} to {CeilingPolicy}, carries out
    # its decisions, and counts them. It also replaces a worker where a person asks for it. One worker is recycled at a
    # time; a worker above the hard ceiling does not wait for that.
    class CeilingEnforcer
      # The reason of a replacement that a person has asked for.
      ASKED = "as asked"

      # History of a worker's number: how often it was recycled, how often stopped at once, and the last reason.
      WorkerHistory = Struct.new(:recycles, :hards, :reason)

      # @return [String, nil] why the first workers cannot stay below their ceilings
      attr_reader :refusal

      def initialize(worker_set, limits, monitor:, scoreboard:, log:)
        @worker_set = worker_set
        @limits = limits
        @monitor = monitor
        @scoreboard = scoreboard
        @report = CeilingReport.new(log)
        @policy = CeilingPolicy.new(limits)
        @backoff = RecyclingBackoff.new
        @history = Hash.new { |all, index| all[index] = WorkerHistory.new(0, 0) }
        @replacing = []
        @stopped = []
        @too_large_at_start = []
      end

      # Continues what has begun, and decides again after a reading.
      #
      # @param starting [Boolean] whether the first workers are not all ready
      # @param held [Boolean] whether a phased restart replaces all workers; meanwhile they only trim
      def update(now_s, starting: false, held: false)
        advance(now_s)
        @monitor.newcomers.each { |child| worker_ready(child, now_s, starting) }
        return unless @monitor.updated?

        @too_large_at_start.reject! { |child| checked_again?(child) }
        decide(now_s, busy: busy? || @backoff.left_s(now_s).positive?, held: held)
      end

      # @return [Boolean] whether it is above its soft ceiling
      def above_soft?(child)
        bytes = @monitor.memory_of(child).usage&.fetch(:pss)
        soft = @limits.soft(child.index)
        !bytes.nil? && !soft.nil? && bytes >= soft
      end

      # Replaces a worker by one with the same code.
      #
      # @return [String, nil] why it is not
      def replace(index)
        slot = @worker_set.worker_slots.find { |one| one.index == index && one.child }
        return "there is no worker #{index}; `chaton status` lists them" unless slot
        return "a worker is being replaced; try again when it is done" if busy?
        return "there is no room for one more process; try again later" unless @worker_set.room?

        how = @worker_set.retires_first?(slot) ? :only_one : :replace_first
        @report.replaces(slot.child, ASKED, how)
        @replacing << Recycling.new(@worker_set, slot, how, reason: ASKED, purpose: :restart)
        nil
      end

      def busy? = @replacing.any?

      # @return [Boolean] whether it is not known yet if the first workers fit below their ceilings
      def pending? = @too_large_at_start.any?

      # @return [Hash{Symbol=>Object}] for `status`; sizes in bytes
      def to_h(now_s)
        { **@limits.to_h, total: @monitor.total_now(now_s), recycled_total: @history.each_value.sum(&:recycles),
                          hard_total: @history.each_value.sum(&:hards), recycling: @replacing.map(&:to_h) }
      end

      # @return [Hash{Symbol=>Object}] of this worker, for `status`; sizes in bytes
      def of(child, now_s)
        history = @history.fetch(child.index) { WorkerHistory.new(0, 0) }
        { **(@monitor.figures(child, now_s) || {}), soft: @limits.soft(child.index), **history.to_h }
      end

      private

      def advance(now_s)
        @stopped.reject!(&:dead?)
        @replacing.each(&:tick)
        over, @replacing = @replacing.partition { |one| !one.running? }
        over.each { |one| conclude(one, now_s) }
      end

      def conclude(recycling, now_s)
        done = recycling.state == :done
        done ? @backoff.succeeded : @backoff.failed(now_s)
        return @report.abandoned(recycling, pause_s: @backoff.left_s(now_s)) unless done

        memory = !recycling.at_once? && recycling.reason != ASKED
        @history[recycling.child.index].recycles += 1 if memory
        @report.recycled(recycling)
      end

      def worker_ready(child, now_s, starting)
        soft = @limits.soft(child.index) or return
        usage = @monitor.memory_of(child).fresh
        fits = usage.fetch(:pss, 0) < soft
        @backoff.ready(child.index, fits: fits)
        return if fits
        return trim_at_start(child, now_s) if starting

        @report.too_large(child, usage, soft, rest_s: @backoff.age_s(child.index))
      end

      # What booting has left may be garbage, so the worker is judged after a trim.
      def trim_at_start(child, now_s)
        trim(child, now_s)
        @too_large_at_start << child
      end

      def checked_again?(child)
        return true if child.dead?

        memory = @monitor.memory_of(child)
        return false if memory.read_at_s < memory.trimmed_at_s + CeilingPolicy::TRIM_TAKES_S

        # Without exact figures its resident memory was far below the ceiling.
        @refusal ||= @limits.refusal(memory.usage[:pss], @limits.soft(child.index)) if memory.usage
        true
      end

      def decide(now_s, busy:, held:)
        children = @worker_set.children.select { |child| @monitor.memory_of(child).usage }
        reset_trim_counts
        tree = CeilingPolicy::TreeReading.new(total: @monitor.total, current: @monitor.container&.fetch(:current),
                                              container: @limits.container)
        workers = children.map { |child| reading(child, now_s) }
        decision = @policy.decide(workers, tree, busy: busy, held: held)
        carry_out(decision, children[workers.index(decision.worker)], now_s) if decision
        @report.cramped(tree.total, @limits.tree, @policy.cramped?(workers, tree))
      end

      # A worker far from its ceiling was trimmed with success.
      def reset_trim_counts
        @worker_set.children.each do |child|
          memory = @monitor.memory_of(child)
          memory.trims = 0 unless @policy.close?(child.index, memory.usage&.fetch(:pss))
        end
      end

      def reading(child, now_s)
        memory = @monitor.memory_of(child)
        gauges = @scoreboard.read(child.scoreboard_slot)
        CeilingPolicy::WorkerReading.new(
          index: child.index, state: child.state, age_s: now_s - child.forked_at_s, pss: memory.usage[:pss],
          own: memory.usage[:private], fresh: memory.fresh&.fetch(:private, nil), ahead: @monitor.ahead(child),
          in_flight: gauges.fetch(:running, 0) + gauges.fetch(:queued, 0),
          trimmed_s: memory.trimmed_at_s && (memory.read_at_s - memory.trimmed_at_s),
          trims: memory.trims, rest_s: @backoff.age_s(child.index), ending: @stopped.include?(child)
        )
      end

      def carry_out(decision, child, now_s)
        case decision
        when CeilingPolicy::TrimWorker
          @report.trims(child, decision.reason)
          trim(child, now_s)
        when CeilingPolicy::RecycleWorker then recycle(child, decision)
        when CeilingPolicy::StopWorker then stop_at_once(child, decision.reason, now_s)
        end
      end

      def trim(child, now_s)
        memory = @monitor.memory_of(child)
        memory.trimmed_at_s = now_s
        memory.trims = memory.trims.to_i + 1
        @monitor.read_by(now_s + CeilingPolicy::TRIM_READ_AFTER_S)
        child.command({ do: "trim" })
      end

      def recycle(child, decision)
        slot = slot_of(child)
        # There is no free row in the shared memory, or TTOU has removed the slot; the next reading decides again.
        return unless slot && @worker_set.room?

        decision.how = :only_one if @worker_set.retires_first?(slot)
        @history[child.index].reason = decision.reason
        @report.begins(child, decision, @monitor.memory_of(child).usage)
        @replacing << Recycling.new(@worker_set, slot, decision.how, reason: decision.reason)
      end

      def stop_at_once(child, reason, now_s)
        history = @history[child.index]
        history.hards += 1
        history.reason = reason
        @stopped << child
        usage = @monitor.memory_of(child).usage
        # A replacement would need as much to load, so this counts as a failed boot.
        return child.kill_boot(@limits.refusal_of_boot(usage[:pss])) unless child.served?

        @worker_set.blame_work(child, "memory: #{reason.delete_prefix("its memory reached ")}")
        @report.stopped(child, reason, usage, @scoreboard.read(child.scoreboard_slot))
        slot = slot_of(child)
        return child.stop_now(now_s, purpose: :memory) if slot.nil? || replaced_already?(slot)

        @replacing << Recycling.new(@worker_set, slot, :retire_first, reason: reason, at_once: true)
      end

      def slot_of(child) = @worker_set.worker_slots.find { |slot| slot.child.equal?(child) }

      def replaced_already?(slot) = !slot.successor.nil? || @replacing.any? { |one| one.slot.equal?(slot) }
    end

    # Logs what is done about memory, and why.
    class CeilingReport
      # Figures of a worker's memory that a line contains.
      PARTS = %i[rss pss private shared].freeze
      # Figures of its heap and its allocator on the scoreboard: counts, and bytes.
      COUNTS = %i[live_slots old_objects heap_pages].freeze
      SIZES = %i[allocator_active allocator_resident allocator_retained].freeze

      # In which order the old and the new worker exit and start.
      SEQUENCES = {
        replace_first: "a new one is started first",
        retire_first: "there is no room for two, so it exits first",
        only_one: "its consumer groups allow only one of its name, so it exits first"
      }.freeze

      def initialize(log)
        @log = log
        @cramped = false
      end

      def trims(child, reason)
        @log.info("worker is asked to collect and trim: #{reason}", **facts(child))
      end

      # @param usage [Hash{Symbol=>Integer}]
      def begins(child, decision, usage)
        @log.info("worker is being recycled: #{decision.reason}; #{SEQUENCES.fetch(decision.how)}",
                  **facts(child), **sizes(usage, PARTS))
      end

      # @param how [Symbol] see SEQUENCES
      def replaces(child, reason, how)
        @log.info("worker is being replaced, #{reason}; #{SEQUENCES.fetch(how)}", **facts(child))
      end

      # @param recycling [Recycling] that has ended
      def recycled(recycling)
        event = recycling.at_once? ? "worker replaced after it was stopped at once" : "worker recycled"
        @log.info("#{event}: #{recycling.reason}", **facts(recycling.child), **facts_of_next(recycling))
      end

      # @param pause_s [Float] time until a worker is recycled again
      def abandoned(recycling, pause_s:)
        stays = recycling.child.dead? ? "its slot is empty" : "the old one goes on serving"
        @log.error("recycling abandoned: the new worker did not come up; #{stays}", **facts(recycling.child),
                                                                                    next_in_s: pause_s)
      end

      # @param gauges [Hash{Symbol=>Object}] its row on the scoreboard
      def stopped(child, reason, usage, gauges)
        # Zero means that the figure is not collected.
        known = gauges.reject { |_, value| value.is_a?(Integer) && value.zero? }
        @log.error("worker stopped at once: #{reason}. Its threads' backtraces follow: look for code that holds much " \
                   "memory, find what allocates with `chaton profile`, or raise the ceiling",
                   **facts(child), **sizes(usage, PARTS), **known.slice(*COUNTS), **sizes(known, SIZES))
      end

      # @param rest_s [Float] age before which it is not recycled
      def too_large(child, usage, soft, rest_s:)
        @log.warn("worker is above its soft ceiling as soon as it is ready: replacing it would not help, so it is " \
                  "left alone for now; raise `limit` in `memory { }`",
                  **facts(child), **sizes(usage, PARTS), soft: size(soft), not_before_s: rest_s)
      end

      # Logs once per period in which it holds.
      #
      # @param cramped [Boolean] see {CeilingPolicy#cramped?}
      def cramped(total, limit, cramped)
        if cramped && !@cramped
          @log.warn("all processes together are above limit_tree, and none has grown since it was ready: replacing " \
                    "one would not help. Raise limit_tree, or run fewer workers",
                    total: size(total), limit: size(limit))
        end
        @cramped = cramped
      end

      private

      def facts(child) = { worker: child.index, pid: child.pid.to_i }

      def facts_of_next(recycling)
        pid = recycling.slot.child&.pid
        { successor: pid, took_s: (EventLoop.now_s - recycling.begun_at_s).round(3) }.compact
      end

      def sizes(figures, names) = figures.slice(*names).transform_values { |bytes| size(bytes) }

      def size(bytes) = Telemetry::Size.of(bytes)
    end
  end
end
