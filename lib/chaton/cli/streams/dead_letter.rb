# frozen_string_literal: true

module Chaton
  class CLI
    module Streams
      # A record of a dead-letter topic, its origin, and the original record.
      class DeadLetter
        # Headers that were added to the original record.
        ADDED = %w[source_topic source_partition source_offset source_consumer_group source_attempts error_class
                   error_message failed_at source_value_bytes].freeze

        attr_reader :record

        def initialize(record)
          @record = record
        end

        # @return [String, nil] nil: it is not a dead letter
        def topic = added("source_topic")

        # @return [Integer, nil]
        def partition = added("source_partition")&.then { |text| Integer(text, 10, exception: false) }

        # @return [Hash{Symbol=>Object}] the added headers
        def cause
          all = ADDED.to_h { |name| [name.to_sym, added(name)] }
          value_omitted? ? all : all.except(:source_value_bytes)
        end

        # @return [Boolean] the record was too large for the dead-letter topic, so that its value was not written
        def value_omitted? = !added("source_value_bytes").nil?

        # @return [Hash{String=>String, Array, nil}] without the added ones. An original header of the same name comes
        #   before the added one.
        def headers
          @record.headers.each_with_object({}) do |(name, value), rest|
            next rest[name] = value unless ADDED.include?(name)

            own = value.is_a?(Array) ? value[0..-2] : []
            rest[name] = own.size == 1 ? own.first : own unless own.empty?
          end
        end

        # @param topic [String] where it goes
        # @param partition [Integer, nil] nil: by its key
        # @return [Array] as `produce_many` takes it; value and key as they are
        def to_row(topic, partition) = [topic, @record.raw, @record.key, headers, partition, nil]

        # @return [String] "events.dead/0 @5"
        def place = "#{@record.topic}/#{@record.partition} @#{@record.offset}"

        private

        def added(name)
          value = @record.headers[name]
          text = value.is_a?(Array) ? value.last : value
          text&.dup&.force_encoding(Encoding::UTF_8)&.scrub
        end
      end
    end
  end
end
