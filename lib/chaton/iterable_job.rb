# frozen_string_literal: true

require "json"
require_relative "job"

module Chaton
  # A job that goes through many items and can be interrupted between two of them: when its worker stops it goes
  # back to its queue and is continued where it was.
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
  # The enumerator answers pairs of an item and its cursor, a plain value from which `build_enumerator` can begin
  # with this very item. An item during which the worker dies is done again.
  module IterableJob
    # Its own methods come before those of {Job}, so that one is included first.
    # @private
    def self.append_features(base)
      base.include(Job)
      base.include(Enumerators)
      super
    end

    # Says what to go through.
    #
    # @param cursor [Object, nil] where to begin; nil: at the beginning
    # @return [Enumerator, nil] nil: there is nothing to do
    def build_enumerator(*, cursor:) = raise(NotImplementedError, "#{self.class} has no build_enumerator")

    # Works on one item.
    #
    # @return [void]
    def each_iteration(*) = raise(NotImplementedError, "#{self.class} has no each_iteration")

    # Called before the first item, once.
    def on_start; end

    # Called before the first item after an interruption or a failure.
    def on_resume; end

    # Called whenever it stops: interrupted, cancelled or at its end.
    def on_stop; end

    # Called when it was cancelled.
    def on_cancel; end

    # Called at its end.
    def on_complete; end

    # Around each {#each_iteration}.
    def around_iteration = yield

    # @return [Array] what the job was enqueued with
    attr_reader :arguments
    # @return [Object, nil] that of the current item
    attr_reader :cursor

    # Cancels this job; it stops before the next item.
    #
    # @return [void]
    def cancel!
      @cancelled = true
      @progress&.cancel
    end

    # @return [Boolean]
    def cancelled? = @cancelled || super

    # What the worker calls; a class writes {#build_enumerator} and {#each_iteration} instead.
    # @private
    def perform(*arguments)
      @arguments = arguments
      @progress = Progress.open(@unit&.jid)
      @cursor = @progress.cursor
      @cancelled ||= @progress.cancelled?
      # Cancelled before it began: no enumerator is made.
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

        around_iteration { each_iteration(item, *@arguments) }
      end
      :complete
    end

    # Where no worker runs it there is nobody to send it back to.
    def interrupted? = @unit && Jobs.stopping?

    def finish(how)
      if how == :interrupted
        @progress.save(@cursor)
        on_stop
        @unit.requeue
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
require_relative "iterable_job/progress"
