# frozen_string_literal: true

require "securerandom"
require_relative "job"

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

    # @return [String]
    attr_reader :bid
    # @return [String]
    attr_accessor :description
    # @return [String, Symbol, nil] queue of the callbacks; nil: "default"
    attr_accessor :callback_queue

    # @param bid [String, nil] of an existing batch, to add jobs to it; nil: a new batch
    def initialize(bid = nil)
      @fresh = bid.nil?
      @bid = bid || SecureRandom.urlsafe_base64(BID_BYTES)
      @description = ""
      @callbacks = []
      @parent = Thread.current[Jobs::Client::BATCH] || Thread.current[:chaton_parent_batch] if @fresh
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

    # Jobs enqueued in the block belong to the batch. If the first block fails, the batch stays open and its callbacks
    # do not run.
    #
    # @return [self]
    def jobs
      client = Jobs.client
      first = @fresh
      create(client) if first
      outer = Thread.current[Jobs::Client::BATCH]
      begin
        Thread.current[Jobs::Client::BATCH] = @bid
        yield
      ensure
        Thread.current[Jobs::Client::BATCH] = outer
      end
      # After the pushes, which may wait for the end of a transaction.
      Jobs::AfterCommit.run { client.native.batch_close(@bid) } if first
      self
    end

    # @return [Status]
    def status = Status.new(@bid)

    # @return [String, nil] the batch it is nested in
    def parent_bid = @fresh ? @parent : status.parent_bid

    # @return [Batch, nil]
    def parent
      bid = parent_bid
      bid && Batch.new(bid)
    end

    private

    def create(client)
      callbacks = @callbacks.map { |callback| document(client, *callback) }
      client.native.batch_open(@bid, @parent, @description.to_s, callbacks, TTL_S)
      @fresh = false
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
