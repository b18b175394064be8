# frozen_string_literal: true

require "json"
require_relative "job"
require_relative "transaction"

module Chaton
  # A job that iterates over many items and can be interrupted between two of them. When its worker stops, it goes
  # back to its queue and continues later at the same item.
  #
  # @example
  #   class Renumber
  #     include Chaton::IterableJob
  #
  #     def build_enumerator(shop_id, cursor:)
  #       active_record_records_enumerator(Order.where(shop_id: shop_id), cursor: cursor)
  #     end
  #
  #     def each_iteration(order, shop_id) = order.renumber!
  #   end
  #
  # The enumerator yields pairs of an item and its cursor, a plain value from which `build_enumerator` can begin with
  # this item again. If the worker dies, its current item is repeated.
  module IterableJob
    # Why an iteration has no {Chaton.transaction}.
    NO_TRANSACTION = "Chaton.transaction cannot be used in each_iteration: the place of an iterable job is stored " \
                     "apart from its end, with which a transaction is written; enqueue and produce without it"
    private_constant :NO_TRANSACTION

    # {Job} is included first, so that methods of this module override it.
    # @private
    def self.append_features(base)
      base.include(Job)
      base.include(Enumerators)
      super
    end

    # Returns an enumerator over the items.
    #
    # @param cursor [Object, nil] of the item to begin with; nil: the first
    # @return [Enumerator, nil] nil when there is nothing to do
    def build_enumerator(*, cursor:) = raise(NotImplementedError, "#{self.class} has no build_enumerator")

    # Processes one item.
    def each_iteration(*) = raise(NotImplementedError, "#{self.class} has no each_iteration")

    # Called once, before the first item.
    def on_start; end

    # Called when it continues after an interruption or a failure.
    def on_resume; end

    # Called when it is interrupted or cancelled, and at its end.
    def on_stop; end

    # Called when it is cancelled.
    def on_cancel; end

    # Called at its end.
    def on_complete; end

    # Around each {#each_iteration}.
    def around_iteration = yield

    # @return [Array] the job's arguments
    attr_reader :arguments
    # @return [Object, nil] cursor of the current item
    attr_reader :cursor

    # Cancels this job; it stops before the next item. An object with only the `jid` of a job cancels that one, which
    # may run in any process, and stops within some seconds.
    def cancel!
      @cancelled = true
      # Without a worker nothing is stored.
      jid = @progress ? @native_job&.jid : self.jid
      IterationProgress.cancel(jid) if jid
    end

    def cancelled? = @cancelled || super

    # Called by the worker. Classes define {#build_enumerator} and {#each_iteration} instead.
    # @private
    def perform(*arguments)
      @arguments = arguments
      @progress = IterationProgress.open(@native_job&.jid)
      @cursor = @progress.cursor
      @cancelled ||= @progress.cancelled?
      # A job that was cancelled before it began makes no enumerator.
      cancelled? ? finish(:cancelled) : finish(iterate)
    end

    private

    # @return [Symbol] :complete, :cancelled or :interrupted
    def iterate
      enumerator = build_enumerator(*@arguments, cursor: @cursor)
      return :complete unless enumerator
      unless enumerator.is_a?(Enumerator)
        raise ArgumentError, "build_enumerator of #{self.class} answered #{enumerator.class}; it must be an Enumerator"
      end

      @progress.first_run? ? on_start : on_resume
      go_through(enumerator)
    rescue Exception # rubocop:disable Lint/RescueException -- it is raised again
      # The retry begins with the item that failed.
      @progress.save(@cursor)
      raise
    end

    def go_through(enumerator)
      enumerator.each do |item, cursor|
        @cursor = cursor
        @cancelled ||= @progress.tick(cursor)
        return :cancelled if cancelled?
        return :interrupted if interrupted?

        Transaction.bar(NO_TRANSACTION) { around_iteration { each_iteration(item, *@arguments) } }
      end
      :complete
    end

    def finish(how)
      if how == :interrupted
        @progress.save(@cursor)
        on_stop
        @native_job.requeue
      else
        on_cancel if how == :cancelled
        on_stop
        on_complete if how == :complete
        @progress.forget
      end
    end
  end
end

# They are inside of the module, which has to be there first.
require_relative "iterable_job/enumerators"
require_relative "iterable_job/iteration_progress"
