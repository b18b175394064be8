# frozen_string_literal: true

require_relative "../telemetry/size"
require_relative "recycling"

module Chaton
  class Supervisor
    # Decides what is done about memory. Pure: it gets readings and returns at most one decision.
    #
    # | reading | decision |
    # |---|---|
    # | a worker above the hard ceiling, or the container almost full | the worker is stopped at once |
    # | a worker above its soft ceiling, or all processes above theirs | it trims; in vain, it is recycled |
    # | an idle worker close to its soft ceiling | it collects garbage and trims |
    #
    # The largest worker comes first, and no other one while it is being recycled. Where all processes together are too
    # large, only workers count that have grown since they were ready: recycling another one would free nothing.
    class CeilingPolicy
      # One worker's reading. Sizes in bytes: `own` is its private memory and `fresh` the same when it became ready,
      # `ahead` the expected PSS at the time when a trim can be judged. `trimmed_s` tells how long ago it was asked to
      # trim (nil: never), `trims` how often since it was last far from its ceiling, `rest_s` the age below which it is
      # not recycled, `ending` whether it has been asked to stop at once.
      WorkerReading = Struct.new(:index, :state, :age_s, :pss, :own, :fresh, :ahead, :in_flight, :trimmed_s, :trims,
                                 :rest_s, :ending, keyword_init: true) do
        # @return [Integer] bytes by which it has grown since it was ready
        def grown = own - fresh.to_i
        def grows? = !fresh.nil? && own >= fresh * GROWN
        def rested? = age_s >= rest_s
        def ready? = state == :ready
      end
      # All processes together, and the container; bytes, nil where there is none.
      TreeReading = Struct.new(:total, :current, :container, keyword_init: true)

      # Collect garbage and give free memory back.
      TrimWorker = Struct.new(:worker, :reason)
      # Replace; `how` is :replace_first, or :retire_first where there is no room for both.
      RecycleWorker = Struct.new(:worker, :how, :reason)
      # Stop the worker at once: it is above the hard ceiling.
      StopWorker = Struct.new(:worker, :reason)

      # Duration of a collection and a trim; an earlier reading does not show their effect.
      TRIM_TAKES_S = 0.5
      # When the effect is read, unless the next regular reading comes earlier.
      TRIM_READ_AFTER_S = 2.0
      # Share of the soft ceiling at which an idle worker trims.
      NEAR = 0.9
      # Time for which a trim is not repeated: a worker that reaches its ceiling again within it grows faster than
      # trimming helps.
      TRIM_HOLDS_S = 60.0
      # Time for which an idle worker close to its ceiling is not trimmed again; it doubles each time.
      IDLE_TRIM_PAUSES_S = (TRIM_HOLDS_S..3600.0)
      # Shares of the container's limit at which a worker is stopped at once, and at which a second one is.
      ALMOST_FULL = 0.97
      FULL = 0.99
      # Share of the container's limit that the server must use: with less, other processes fill it, or files that the
      # kernel caches as long as there is room.
      OURS = 0.8
      # Ratio of private memory to its first reading from which on a worker counts as growing.
      GROWN = 1.1

      def initialize(limits)
        @limits = limits
      end

      # @param busy [Boolean] whether a worker is being recycled
      # @param held [Boolean] whether a phased restart replaces all workers
      def decide(workers, tree, busy:, held: false)
        stop = stop(workers, tree)
        return stop if stop || busy

        decision = over_soft(workers, tree) || over_tree(workers, tree) || near(workers)
        return decision unless held && decision.is_a?(RecycleWorker)

        TrimWorker.new(decision.worker, decision.reason) unless trimmed?(decision.worker)
      end

      # @param pss [Integer, nil] bytes; nil where they are known to be few
      # @return [Boolean] whether that is close to its soft ceiling
      def close?(index, pss)
        soft = @limits.soft(index)
        !soft.nil? && !pss.nil? && pss >= soft * NEAR
      end

      # @return [Boolean] whether too much is used and no worker has grown, so that recycling would free nothing
      def cramped?(workers, tree)
        !@limits.tree.nil? && tree.total >= @limits.tree && workers.none?(&:grows?)
      end

      private

      def stop(workers, tree)
        one_is = workers.any?(&:ending)
        left = workers.reject(&:ending)
        unless one_is
          worker = largest(left.select { |one| over_hard?(one) })
          return StopWorker.new(worker, reached(worker.pss, @limits.hard, "hard ceiling")) if worker
        end
        return unless share(tree, tree.current) >= (one_is ? FULL : ALMOST_FULL) && share(tree, tree.total) >= OURS

        worker = left.select(&:grows?).max_by(&:grown)
        worker && StopWorker.new(worker, "the container is almost full: #{size(tree.current)} of " \
                                         "#{size(tree.container)}")
      end

      def over_hard?(worker)
        return false unless @limits.hard && worker.pss >= @limits.hard

        # A worker that is as large from the start would be stopped again and again.
        worker.fresh.to_i < @limits.hard || worker.rested?
      end

      def over_soft(workers, tree)
        over = workers.select { |one| one.ready? && one.rested? && soft(one) && one.pss >= soft(one) }
        worker = largest(over) or return
        reduce(worker, tree, reached(worker.pss, soft(worker), "soft ceiling"))
      end

      def over_tree(workers, tree)
        return unless @limits.tree && tree.total >= @limits.tree

        worker = workers.select { |one| one.ready? && one.rested? && one.grows? }.max_by(&:own) or return
        reduce(worker, tree, "all processes have #{size(tree.total)} of #{size(@limits.tree)} together (limit_tree) " \
                             "and it is the largest of those that grow: #{size(worker.pss)}")
      end

      # Only idle workers: a full collection while work runs is worth its cost only when the alternative is to recycle
      # the worker.
      def near(workers)
        close = workers.select do |one|
          one.ready? && one.in_flight.zero? && close?(one.index, one.pss) && !trim_paused?(one)
        end
        worker = largest(close)
        worker && TrimWorker.new(worker, "it is close to its soft ceiling: #{size(worker.pss)} of " \
                                         "#{size(soft(worker))}")
      end

      def reduce(worker, tree, reason)
        trimmed = trimmed?(worker)
        # It would reach the hard ceiling before the effect of a trim can be read.
        hurry = !@limits.hard.nil? && worker.ahead >= @limits.hard
        return TrimWorker.new(worker, reason) unless trimmed || hurry

        RecycleWorker.new(worker, how(worker, tree), reason) if hurry || worker.trimmed_s >= TRIM_TAKES_S
      end

      def how(worker, tree)
        needed = worker.fresh || worker.own
        rooms = [[tree.total, @limits.tree], [tree.current, tree.container]]
        rooms.any? { |used, limit| used && limit && used + needed > limit } ? :retire_first : :replace_first
      end

      def trimmed?(worker) = !worker.trimmed_s.nil? && worker.trimmed_s < TRIM_HOLDS_S

      def trim_paused?(worker)
        !worker.trimmed_s.nil? &&
          worker.trimmed_s < RecyclingBackoff.doubled(IDLE_TRIM_PAUSES_S, [worker.trims - 1, 0].max)
      end

      def share(tree, bytes)
        bytes && tree.container ? bytes.fdiv(tree.container) : 0.0
      end

      def soft(worker) = @limits.soft(worker.index)

      def largest(workers) = workers.max_by(&:pss)

      def reached(bytes, ceiling, name) = "its memory reached #{size(bytes)} (#{name} #{size(ceiling)})"

      def size(bytes) = Telemetry::Size.of(bytes)
    end
  end
end
