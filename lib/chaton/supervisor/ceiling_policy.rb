# frozen_string_literal: true

require_relative "../telemetry/size"
require_relative "rest"

module Chaton
  class Supervisor
    # Decides what is done about memory. Pure: readings in, at most one decision out.
    #
    # | reading | decision |
    # |---|---|
    # | a worker above the hard ceiling, or the container almost full | it is stopped at once |
    # | a worker above its soft ceiling, or all together above theirs | it collects and trims; if in vain, is replaced |
    # | an idle worker close to its soft ceiling | it collects and trims |
    #
    # Of several the largest comes first, and nobody while another one is being replaced. Where the sum is what is too
    # large, only those count that have grown since they were ready: replacing one that has not would give nothing back.
    class CeilingPolicy
      # One worker as it was read. Sizes in bytes; `own` is its private memory, `fresh` what there was of that when it
      # became ready; `rest_s` is the age below which it is left alone, `relieved_s` how long ago it was told to trim
      # (nil: never) and `reliefs` how often since it was last far from its ceiling, `ahead` what its PSS will be by the
      # time the success of that can be judged, `ending` whether it has been told to stop at once.
      Worker = Struct.new(:index, :state, :age_s, :pss, :own, :fresh, :ahead, :in_flight, :relieved_s, :reliefs,
                          :rest_s, :ending, keyword_init: true) do
        # @return [Integer] bytes by which it has grown since it was ready
        def grown = own - fresh.to_i
        def grows? = !fresh.nil? && own >= fresh * GROWN
        def rested? = age_s >= rest_s
        def ready? = state == :ready
      end
      # All processes together, and the container around them; bytes, nil where there is none.
      Tree = Struct.new(:total, :current, :container, keyword_init: true)

      # Collect and trim.
      Relieve = Struct.new(:worker, :reason)
      # Replace; `how` is :replace_first, or :retire_first where both have no room.
      Recycle = Struct.new(:worker, :how, :reason)
      # Stop at once.
      Hard = Struct.new(:worker, :reason)

      # What a collection and a trim may take; a reading before that says nothing about their success.
      RELIEF_TAKES_S = 0.5
      # When its success is looked at, should the next look be later than that.
      RELIEF_SEEN_S = 2.0
      # Share of the soft ceiling at which an idle worker trims.
      NEAR = 0.9
      # A worker that was told to trim is not told again for so long: it grows faster than that helps.
      RELIEF_HOLDS_S = 60.0
      # How long an idle one close to its ceiling is left in peace: longer each time that it was in vain.
      PEACE_S = (RELIEF_HOLDS_S..3600.0)
      # Shares of the container's limit: the last moment to act, and the one at which several may be stopped.
      ALMOST_FULL = 0.97
      FULL = 0.99
      # Share of the container's limit that must be ours: with less, it is full of what others use, or of files that the
      # kernel keeps as long as there is room.
      OURS = 0.8
      # Growth of private memory over the first reading from which a worker counts as growing.
      GROWN = 1.1

      # @param limits [MemoryLimits]
      def initialize(limits)
        @limits = limits
      end

      # @param workers [Array<Worker>] who has been read
      # @param tree [Tree]
      # @param busy [Boolean] whether a worker is being replaced
      # @param held [Boolean] whether all of them are, by somebody else
      # @return [Relieve, Recycle, Hard, nil]
      def decide(workers, tree, busy:, held: false)
        hard = hard(workers, tree)
        return hard if hard || busy

        decision = over_soft(workers, tree) || over_tree(workers, tree) || near(workers)
        return decision unless held && decision.is_a?(Recycle)

        Relieve.new(decision.worker, decision.reason) unless relieved?(decision.worker)
      end

      # @param index [Integer] of a worker
      # @param pss [Integer, nil] bytes; nil where they are known to be few
      # @return [Boolean] whether that is close to its soft ceiling
      def close?(index, pss)
        soft = @limits.soft(index)
        !soft.nil? && !pss.nil? && pss >= soft * NEAR
      end

      # @return [Boolean] whether too much is used, and no worker has grown: replacing one would give nothing back
      def cramped?(workers, tree)
        !@limits.tree.nil? && tree.total >= @limits.tree && workers.none?(&:grows?)
      end

      private

      def hard(workers, tree)
        one_is = workers.any?(&:ending)
        left = workers.reject(&:ending)
        unless one_is
          worker = largest(left.select { |one| over_hard?(one) })
          return Hard.new(worker, reached(worker.pss, @limits.hard, "hard ceiling")) if worker
        end
        return unless share(tree, tree.current) >= (one_is ? FULL : ALMOST_FULL) && share(tree, tree.total) >= OURS

        worker = left.select(&:grows?).max_by(&:grown)
        worker && Hard.new(worker, "the container is almost full: #{size(tree.current)} of #{size(tree.container)}")
      end

      def over_hard?(worker)
        return false unless @limits.hard && worker.pss >= @limits.hard

        # One that is as large from the start would be stopped again and again.
        worker.fresh.to_i < @limits.hard || worker.rested?
      end

      def over_soft(workers, tree)
        over = workers.select { |one| one.ready? && one.rested? && soft(one) && one.pss >= soft(one) }
        worker = largest(over) or return
        ease(worker, tree, reached(worker.pss, soft(worker), "soft ceiling"))
      end

      def over_tree(workers, tree)
        return unless @limits.tree && tree.total >= @limits.tree

        worker = workers.select { |one| one.ready? && one.rested? && one.grows? }.max_by(&:own) or return
        ease(worker, tree, "all processes have #{size(tree.total)} of #{size(@limits.tree)} together (limit_tree) " \
                           "and it is the largest of those that grow: #{size(worker.pss)}")
      end

      # A full collection inside of work is only worth it when the alternative is to replace the worker.
      def near(workers)
        close = workers.select do |one|
          one.ready? && one.in_flight.zero? && close?(one.index, one.pss) && !in_peace?(one)
        end
        worker = largest(close)
        worker && Relieve.new(worker, "it is close to its soft ceiling: #{size(worker.pss)} of #{size(soft(worker))}")
      end

      def ease(worker, tree, reason)
        relieved = relieved?(worker)
        # No time to see whether trimming helps: it would be stopped at once.
        hurry = !@limits.hard.nil? && worker.ahead >= @limits.hard
        return Relieve.new(worker, reason) unless relieved || hurry

        Recycle.new(worker, how(worker, tree), reason) if hurry || worker.relieved_s >= RELIEF_TAKES_S
      end

      def how(worker, tree)
        needed = worker.fresh || worker.own
        rooms = [[tree.total, @limits.tree], [tree.current, tree.container]]
        rooms.any? { |used, limit| used && limit && used + needed > limit } ? :retire_first : :replace_first
      end

      def relieved?(worker) = !worker.relieved_s.nil? && worker.relieved_s < RELIEF_HOLDS_S

      def in_peace?(worker)
        !worker.relieved_s.nil? && worker.relieved_s < Rest.doubled(PEACE_S, [worker.reliefs - 1, 0].max)
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
