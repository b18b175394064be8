# frozen_string_literal: true

require "securerandom"
require_relative "job"
require_relative "rails/after_commit"

module Chaton
  # A group of jobs with callbacks: for when all have succeeded, when all have run, and when the first has died. A
  # callback runs as a job of its own.
  #
  # @example
  #   batch = Chaton::Batch.new
  #   batch.description = "Import of #{file}"
  #   batch.on(:success, ImportDone, "file" => file)
  #   batch.jobs { rows.each { |row| ImportRow.perform_async(row) } }
  #
  #   class ImportDone
  #     def on_success(status, options) = Mailer.imported(options["file"], status.total)
  #   end
  #
  # A batch made in a job of another batch, or in its `jobs` block, is nested: the outer one waits for it.
  class Batch
    # Events of a batch.
    EVENTS = %i[success complete death].freeze
    # Random bytes of a bid.
    BID_BYTES = 10
    # A batch is removed after this time: 30 days.
    TTL_S = 30 * 86_400.0

    attr_reader :bid
    # @return [String]
    attr_accessor :description
    # @return [String, Symbol, nil] queue of the callbacks; nil: "default"
    attr_accessor :callback_queue

    # @param bid [String, nil] of an existing batch, to add jobs to it; nil: a new batch
    def initialize(bid = nil)
      @fresh = bid.nil?
      @bid = bid || new_bid
      @description = ""
      @callbacks = []
      @parent = Thread.current[Jobs::Client::BATCH]&.bid || Thread.current[:chaton_parent_batch] if @fresh
    end

    # Adds a callback.
    #
    # @param event [Symbol] :success (all jobs have succeeded), :complete (all have run once) or :death (one has
    #   failed for good)
    # @param target [Class, String] `Done` with a method `on_success(status, options)`, or "Done#method"
    # @param options [Hash{String=>Object}] plain values, passed to the callback
    # @return [self]
    def on(event, target, options = {})
      unless EVENTS.include?(event.to_sym)
        raise ArgumentError, "a batch has no event #{event.inspect}; it has #{EVENTS.map(&:inspect).join(", ")}"
      end
      raise Error, "batch #{@bid} has its jobs already: add its callbacks before" unless @fresh

      @callbacks << [event.to_s, target.to_s, options]
      self
    end

    # Jobs enqueued in the block belong to the batch, and are pushed together at its end; unique jobs, and 1,000 when
    # there are so many, earlier. If the first block fails, the batch is given up: its callbacks do not run, and what
    # was pushed already runs all the same. `jobs` may be called again, which makes a batch with another {#bid}.
    #
    # @return [self]
    # @raise [Error] when the batch was removed meanwhile, since its block took a day or its process was taken for dead
    def jobs(&)
      client = Jobs.client
      first = @fresh
      create(client) if first
      client.in_batch(@bid, &)
      # After the pushes, which may wait for the end of a transaction.
      AfterCommit.run(rolled_back: -> { give_up(client) }) { close(client) } if first
      ended = true
      self
    ensure
      give_up(client) if first && !ended
    end

    def status = Status.new(@bid)

    # @return [String, nil] the batch it is nested in
    def parent_bid = @fresh ? @parent : status.parent_bid

    # @return [Batch, nil]
    def parent
      bid = parent_bid
      bid && Batch.new(bid)
    end

    private

    def new_bid = SecureRandom.urlsafe_base64(BID_BYTES)

    def create(client)
      callbacks = @callbacks.map { |callback| document(client, *callback) }
      client.native.batch_open(@bid, @parent, @description.to_s, callbacks, TTL_S, Jobs.owner.to_s)
      @fresh = false
    end

    def close(client)
      return if client.native.batch_close(@bid)

      raise Error, "batch #{@bid} is gone: while its `jobs` block ran, its process was taken for dead, or a day went " \
                   "by; its jobs run, its callbacks do not: make the batch again"
    end

    # Without the store, a worker removes the batch later. What the block has pushed still names the old bid.
    def give_up(client)
      given_up = @bid
      @fresh = true
      @bid = new_bid
      client.native.batch_remove(given_up)
    rescue StoreError
      nil
    end

    # @return [Array(String, String, String)] event, and queue and document of the callback's job
    def document(client, event, target, options)
      declared = Callback.declared
      declared = declared.with("queue" => callback_queue.to_s) if callback_queue
      args = [@bid, event, target, options]
      Jobs::Arguments.check(declared.class_name, args)
      item = declared.item(args)
      now = Jobs::Clock.stamp(client.format)
      item.update("jid" => SecureRandom.hex(Jobs::Client::JID_BYTES), "created_at" => now, "enqueued_at" => now)
      [event, item["queue"], JSON.generate(item)]
    end
  end
end

# They are inside of the class, which has to be there first.
require_relative "batch/callback"
require_relative "batch/status"
