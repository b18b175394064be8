# frozen_string_literal: true

require_relative "streams"

module Chaton
  # Consumes a topic. A class of the application inherits from it, and `streams { topic "events", EventsConsumer }`
  # names the topic.
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
  # An instance lives as long as this process has the partition (with `order: :key` there is one for each key lane), so
  # that its instance variables belong to this partition only. One thread at a time runs it.
  #
  # A batch is done when `consume` returns. When it raises, the records that were not marked are retried after a pause.
  class Consumer
    class << self
      # Skips records for which the block is not true; they count as done. A record has to pass all filters of the
      # class and of its superclasses. The block runs in the consumer.
      #
      # @yieldparam record [Native::Record]
      def filter(&block)
        raise ArgumentError, "filter needs a block: filter { |record| record.key }" unless block

        (@filters ||= []) << block
        nil
      end

      # @return [Array<Proc>] its own filters and the inherited ones
      # @private
      def filters = (superclass.respond_to?(:filters) ? superclass.filters : []) + (@filters || [])
    end

    # Called when the partition was revoked; this instance is not used again.
    def revoked; end

    # Called when the worker stops; this instance is not used again.
    def shutdown; end

    # Called when every record of the partition is consumed, if a class defines it or {#eofed}.
    def eof = eofed

    # Karafka's name of {#eof}. With it, the names below and a `consume` without arguments, a consumer that was written
    # for Karafka runs unchanged.
    def eofed; end

    # @return [Native::Batch, Streams::Selection] what `consume` gets
    attr_accessor :messages

    # @return [Boolean] whether the partition has no record after this batch
    def eofed? = @batch.kind == :end || lag == 0

    # Karafka's name of {#mark}.
    #
    # @param message [Native::Record]
    # @return [Boolean] false when the partition was revoked
    def mark_as_consumed(message)
      mark(message)
      !revoked?
    end
    alias mark_as_consumed! mark_as_consumed

    # @return [String]
    def topic = @batch.topic

    # @return [Integer]
    def partition = @batch.partition

    # @return [Integer] 1, or more where the batch has failed before
    def attempt = @batch.attempt

    # @return [Boolean] whether the partition was revoked while the batch ran: nothing is committed any more, and
    #   another member consumes the records again
    def revoked? = @batch.revoked?

    # Marks this record and all before it in the batch as done, even if the batch fails later.
    #
    # @param record [Native::Record, Integer, #last_offset] a record, its offset, or a part of a batch
    def mark(record)
      Streams::Deliveries.wait if @factory&.wait_for_deliveries?
      offset = offset_of(record)
      Chaton::Transaction.mark(@batch, offset) || @batch.mark(offset)
    end

    # Marks this record alone as done.
    #
    # @param record [Native::Record, Integer]
    def mark_one(record)
      Streams::Deliveries.wait if @factory&.wait_for_deliveries?
      Chaton::Transaction.mark(@batch, nil)
      @batch.mark_one(offset_of(record))
    end

    # Pauses this partition when `consume` has returned; others go on.
    #
    # @param seconds [Numeric]
    def pause(seconds) = @batch.pause(seconds.to_f)

    # Reads this partition from another position when `consume` has returned.
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

    # @return [Integer, nil] records of the partition after this batch; nil where that is unknown
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
    def produce_many(topic, values, **rest) = Chaton.produce_many(topic, values, **rest)

    # Writes records and commits marks in one transaction. When the block raises, nothing is written. For a topic
    # with `transactional: true`.
    #
    # @example
    #   transaction do |tx|
    #     batch.each { |record| tx.produce("totals", total(record.value), key: record.key) }
    #     tx.mark(batch)
    #   end
    # @yieldparam transaction [Streams::Transaction]
    # @return [Object] what the block returns
    # @raise [StreamFenced] when the partition was revoked
    # @raise [StreamError] when nothing was written
    def transaction
      unless @factory.nil? || @factory.transactional?
        raise ConfigError, "topic #{topic.inspect} is not transactional; write topic #{topic.inspect}, " \
                           "#{self.class}, transactional: true"
      end
      raise StreamError, "a transaction inside another one; write the records of both in one" if @transaction

      begin
        @transaction = Streams::Transaction.new(@batch, @factory&.limits)
        answer = yield @transaction
        # What is written beside the transaction.
        Streams::Deliveries.wait if @factory&.wait_for_deliveries?
        @transaction.commit
        answer
      ensure
        @transaction = nil
      end
    end

    # @return [#info, #warn, #error]
    def logger = Streams.logger

    # Set by the handler.
    # @private
    attr_writer :factory, :batch

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
