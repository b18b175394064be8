# frozen_string_literal: true

require_relative "streams"

module Chaton
  # Reads a topic. A class of the application inherits from it, and `streams { topic "events", EventsConsumer }` says
  # what it reads.
  #
  # @example
  #   class EventsConsumer < Chaton::Consumer
  #     filter { |record| record.key }
  #
  #     def consume(batch)
  #       batch.each { |record| Event.create!(record.value) }
  #     end
  #   end
  #
  # An instance lives as long as this process has the partition (with `order: :key` there is one for each lane of
  # it), so that what it keeps in its variables is of this partition only. One thread at a time is in it.
  #
  # A batch is done when `consume` returns; when it raises, what was not marked is given again after a while.
  class Consumer
    class << self
      # Records for which the block is not true are not given to `consume`, and count as done. Several filters have
      # to agree; they are inherited. The block runs in the consumer.
      #
      # @yieldparam record [Native::Record]
      def filter(&block)
        raise ArgumentError, "filter needs a block: filter { |record| record.key }" unless block

        (@filters ||= []) << block
        nil
      end

      # @return [Array<Proc>] its own filters and those it inherits
      # @private
      def filters = (superclass.respond_to?(:filters) ? superclass.filters : []) + (@filters || [])
    end

    # The partition goes to another member of the group; this instance is not used again.
    def revoked; end

    # The worker stops; this instance is not used again.
    def shutdown; end

    # Every record of the partition has been consumed. Called only where a class defines it.
    def eof; end

    # @return [String]
    def topic = @batch.topic

    # @return [Integer]
    def partition = @batch.partition

    # @return [Integer] 1, or more where the batch has failed before
    def attempt = @batch.attempt

    # @return [Boolean] whether the partition has gone to another member meanwhile: what is done from now on is done
    #   there again, and nothing is committed
    def revoked? = @batch.revoked?

    # What is done up to this record is not given again, although the batch may fail later.
    #
    # @param record [Native::Record, Integer, #last_offset] a record, its offset, or a part of a batch
    def mark(record) = @batch.mark(offset_of(record))

    # This record is done, whatever becomes of those before it.
    #
    # @param record [Native::Record, Integer]
    def mark_one(record) = @batch.mark_one(offset_of(record))

    # Gets the next batch of this partition no sooner than this; others go on. It begins when `consume` returns.
    #
    # @param seconds [Numeric]
    def pause(seconds) = @batch.pause(seconds.to_f)

    # Goes on elsewhere in this partition when `consume` returns.
    #
    # @param to [Integer, :earliest, :latest, Time] an offset, or the first record of this time
    # @raise [ArgumentError]
    def seek(to)
      case to
      when Integer, "earliest", "latest" then @batch.seek(to)
      when :earliest, :latest then @batch.seek(to.to_s)
      when Time then @batch.seek(["time", (to.to_r * 1000).floor])
      else raise ArgumentError, "seek takes an offset, :earliest, :latest or a Time, not #{to.inspect}"
      end
    end

    # @return [Integer, nil] records of the partition behind this batch; nil where that is not known
    def lag
      ahead = @batch.end_offset
      last = @batch.last_offset
      [ahead - last - 1, 0].max if ahead && last
    end

    # Writes a record; see {Streams::Producing#produce}.
    #
    # @param (see Streams::Producing#produce)
    # @return [Native::Receipt]
    def produce(topic, value, **rest) = Chaton.produce(topic, value, **rest)

    # Writes a record, and returns once it is durable.
    #
    # @param (see Streams::Producing#produce)
    # @return [Native::Receipt]
    def produce!(topic, value, **rest) = Chaton.produce!(topic, value, **rest)

    # Writes many; see {Streams::Producing#produce_many}.
    #
    # @param (see Streams::Producing#produce_many)
    # @return [Native::Receipt]
    def produce_many(topic, values) = Chaton.produce_many(topic, values)

    # Writes records and commits what is marked in one: all of it is seen, or, when the block raises, nothing. For
    # a topic with `transactional: true`.
    #
    # @example
    #   transaction do |tx|
    #     batch.each { |record| tx.produce("totals", total(record.value), key: record.key) }
    #     tx.mark(batch)
    #   end
    # @yieldparam transaction [Streams::Transaction]
    # @return [Object] what the block answers
    # @raise [LogFenced] when the partition has gone to another member
    # @raise [LogError] when nothing was written
    def transaction
      unless @entry.nil? || @entry.transactional?
        raise ConfigError, "topic #{topic.inspect} is not transactional; write topic #{topic.inspect}, " \
                           "#{self.class}, transactional: true"
      end
      raise LogError, "a transaction inside of another one; one of them can hold the records of both" if @transaction

      begin
        @transaction = Streams::Transaction.new(@batch, @entry&.limits)
        answer = yield @transaction
        @transaction.commit
        answer
      ensure
        @transaction = nil
      end
    end

    # @return [#info, #warn, #error]
    def logger = Streams.logger

    # What it is run with.
    # @private
    attr_writer :entry, :batch

    private

    def offset_of(record)
      case record
      when Integer then record
      else
        %i[offset last_offset].each { |name| return record.public_send(name) if record.respond_to?(name) }
        raise ArgumentError, "mark takes a record, an offset or a part of a batch, not #{record.inspect}"
      end
    end
  end
end
