# frozen_string_literal: true

require_relative "../errors"

module Chaton
  # Where the shared object cannot be, as on macOS, tests of consumers get these classes instead of the native ones.
  # Methods without a comment are as in sig/streams.rbs.
  module Native
    # A record.
    class Record
      attr_reader :topic, :partition, :offset, :timestamp_ms

      def initialize(topic, partition, row, offset, deserializer)
        @topic = topic
        @partition = partition
        @raw, @key, @headers, timestamp_ms = row
        @timestamp_ms = timestamp_ms || -1
        @offset = offset
        @deserializer = deserializer
      end

      def value
        @made ||= [@deserializer ? @deserializer.call(self) : raw]
        @made.first
      end

      def raw = @raw&.b

      def key = @key&.b

      def key? = !@key.nil?

      def headers
        (@headers || {}).transform_values { |value| value.is_a?(Array) ? value.map { |one| one&.b } : value&.b }
      end
    end

    # Records that were built for a test.
    class Batch
      # What the batch and its slices have in common: who consumes it, and what he did.
      Shared = Struct.new(:topic, :number, :current_offset, :calls)
      private_constant :Shared

      # @raise [ArgumentError] for offsets that do not rise
      def self.build(topic, partition, rows)
        following = 0
        rows = rows.map do |row|
          offset = row[4] || following
          raise ArgumentError, "offset #{offset} comes after #{following - 1}" if offset < following

          following = offset + 1
          [row, offset]
        end
        calls = { marked: [], paused_s: nil, seek: nil, written: [], outcome: nil }
        new(Shared.new(topic.dup.freeze, partition, nil, calls), rows, nil)
      end

      attr_writer :deserializer

      def initialize(shared, rows, deserializer, slice: false)
        @shared = shared
        @rows = rows
        @deserializer = deserializer
        @slice = slice
      end

      def calls = @shared.calls
      def topic = @shared.topic
      def partition = @shared.number
      def current_offset = @shared.current_offset
      def kind = :records
      def route = 0
      def generation = 0
      def lane = 0
      alias strand lane
      def attempt = 1
      def isolated? = false
      def revoked? = false
      def open? = calls[:outcome].nil?
      def size = @rows.size
      def bytes = @rows.sum { |(value, key), _| value.to_s.bytesize + key.to_s.bytesize }
      def values = @rows.map { |(value), _| value&.b }
      def first_offset = @rows.first&.last
      def last_offset = @rows.last&.last
      def end_offset = last_offset&.succ

      def [](place)
        row, offset = @rows[place]
        row && Record.new(topic, partition, row, offset, @deserializer)
      end

      def each
        @rows.each_index do |place|
          @shared.current_offset = @rows[place].last
          yield self[place]
        end
        @shared.current_offset = nil
        self
      end

      def slice(start, length)
        rows = @rows[start, length]
        rows && Batch.new(@shared, rows, @deserializer, slice: true)
      end

      def mark(offset) = through(offset)

      def mark_one(offset)
        calls[:marked] << Integer(offset)
        nil
      end

      def pause(seconds)
        calls[:paused_s] = seconds
        nil
      end

      def seek(position)
        calls[:seek] = position
        nil
      end

      def describe
        offsets = [first_offset, last_offset].compact.uniq
        "#{topic}/#{partition} #{offsets.empty? ? "without records" : "@#{offsets.join("-")}"}"
      end

      def done = finish(:done)

      def failed(class_name, message) = finish([:failed, class_name, message])

      def abandon
        finish(:abandoned)
        nil
      end

      # Keeps +rows+ (Arrays of a record's parts) as written, and marks the records up to +offset+ (an Integer, or nil
      # for none) as done.
      def transact(rows, offset)
        through(offset) if offset
        calls[:written].concat(rows.map { |row| Array.new(6) { |place| row[place] } })
        nil
      end

      private

      def through(offset)
        calls[:marked].concat(@rows.map(&:last).take_while { |own| own <= offset })
        nil
      end

      def finish(outcome)
        raise ArgumentError, "this is a part of a batch: end the batch it is part of" if @slice
        raise ClosedError, "this batch has ended already; a unit of work is finished once" unless open?

        calls[:outcome] = outcome
        [:done]
      end
    end

    # Nothing is produced here.
    Receipt = Class.new
  end
end
