# frozen_string_literal: true

require "json"

module Chaton
  module Streams
    # Converts values of an application to Strings and milliseconds.
    module Values
      # The keys of a Hash that describes a record among many values.
      KEYS = %i[value key headers partition timestamp].freeze

      # Stores records in the transaction of the application; see {Producing#produce}.
      #
      # @param values [Array] values; a Hash describes a record
      # @param connection [Object, nil] nil: that of ActiveRecord
      # @return [nil] the relay writes them
      # @raise [ConfigError, Error]
      def outbox(topic, values, connection)
        Jobs.client.outbox(values.map { |value| row_of(topic, value) }, connection)
      end

      private

      # @return [String, nil] nil: a tombstone
      def bytes_of(value)
        case value
        when String, nil then value
        when Hash, Array then JSON.generate(value)
        else
          raise ArgumentError, "a record's value must be a String, a Hash or an Array (which become JSON) or nil (a " \
                               "tombstone), not #{value.class}"
        end
      end

      def key_of(key)
        case key
        when String then key
        when Symbol, Integer then key.to_s
        else raise ArgumentError, "a record's key must be a String, a Symbol or an Integer, not #{key.class}"
        end
      end

      # An Array is a name that comes several times.
      def headers_of(headers)
        raise ArgumentError, "headers must be a Hash, not #{headers.class}" unless headers.is_a?(Hash)
        return headers if headers.all? { |name, value| name.is_a?(String) && (value.nil? || value.is_a?(String)) }

        headers.to_h do |name, value|
          [name.to_s, value.is_a?(Array) ? value.map { |one| one&.to_s } : value&.to_s]
        end
      end

      def ms_of(timestamp)
        case timestamp
        when Integer then timestamp
        when Time then (timestamp.to_r * 1000).floor
        else
          return ms_of(timestamp.to_time) if timestamp.respond_to?(:to_time)

          raise ArgumentError, "a timestamp must be a Time, or milliseconds as an Integer, not #{timestamp.class}"
        end
      end

      # @return [Array] a row for the native client
      def row(topic, value, key, headers, partition, timestamp)
        [topic, bytes_of(value), key.nil? ? nil : key_of(key), headers && headers_of(headers), partition,
         timestamp && ms_of(timestamp)]
      end

      # @param value [String, Array, Hash, nil] a Hash describes the record
      # @return [Array]
      def row_of(topic, value)
        return [topic, bytes_of(value)] unless value.is_a?(Hash)

        unknown = value.keys - KEYS
        unless unknown.empty? && value.key?(:value)
          raise ArgumentError, "a Hash among several values describes a record by #{KEYS.join(":, ")}:, not by " \
                               "#{value.keys.inspect}; write { value: … } around a Hash that is a value"
        end
        row(topic, *value.values_at(*KEYS))
      end
    end
  end
end
