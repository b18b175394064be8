# frozen_string_literal: true

require_relative "../telemetry/size"

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
      # (nil: never), `ahead` what its PSS will be by the time the success of that can be judged, `ending` whether it
      # has been told to stop at once.
      Worker = Struct.new(:index, :state, :age_s, :pss, :own, :fresh, :ahead, :in_flight, :relieved_s, :rest_s,
                          :ending, keyword_init: true) do
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
      # Share of the soft ceiling at which an idle worker trims.
      NEAR = 0.9
      # A worker that was told to trim is not told again for so long: it grows faster than that helps.
      RELIEF_HOLDS_S = 60.0
      # Shares of the container's limit: the last moment to act, and the one at which several may be stopped.
      ALMOST_FULL = 0.97
      FULL = 0.99
      # Growth of private memory over the first reading from which a worker counts as growing.
      GROWN = 1.1

      # @param limits [MemoryLimits]
      def initialize(limits)
        @limits = limits
      end

      # @param workers [Array<Worker>] who has been read
      # @param tree [Tree]
      # @param busy [Boolean] whether a worker is being replaced, or all of them are
      # @return [Relieve, Recycle, Hard, nil]
      def decide(workers, tree, busy:)
        hard(workers, tree) || (busy ? nil : over_soft(workers, tree) || over_tree(workers, tree) || near(workers))
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
        return unless share(tree) >= (one_is ? FULL : ALMOST_FULL)

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
          one.ready? && one.in_flight.zero? && soft(one) && one.pss >= soft(one) * NEAR && !relieved?(one)
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

      def share(tree)
        tree.current && tree.container ? tree.current.fdiv(tree.container) : 0.0
      end

      def soft(worker) = @limits.soft(worker.index)

      def largest(workers) = workers.max_by(&:pss)

      def reached(bytes, ceiling, name) = "its memory reached #{size(bytes)} (#{name} #{size(ceiling)})"

      def size(bytes) = Telemetry::Size.of(bytes)
    end
  end
end
