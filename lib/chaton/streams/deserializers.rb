# frozen_string_literal: true

require "json"
require_relative "../errors"

module Chaton
  module Streams
    # Turn the bytes of a record into a value when the value is read.
    module Deserializers
      # Text in UTF-8.
      module Utf8
        # @param record [Native::Record]
        # @return [String, nil] UTF-8; nil for a tombstone
        # @raise [DeserializationError]
        def self.call(record)
          raw = record.raw or return
          text = raw.dup.force_encoding(Encoding::UTF_8)
          text.valid_encoding? ? text : Deserializers.refuse(record, "it is not UTF-8")
        end
      end

      # JSON.
      module Json
        # @param record [Native::Record]
        # @return [Object] nil for a tombstone
        # @raise [DeserializationError]
        def self.call(record)
          text = Utf8.call(record)
          text && JSON.parse(text)
        rescue JSON::ParserError => e
          Deserializers.refuse(record, "it is not JSON: #{e.message.sub(/\A\d+: /, "")[0, 200]}")
        end
      end

      # A deserializer of the application. Its errors name the record.
      class CustomDeserializer
        # @param callable [#call]
        def initialize(callable)
          @callable = callable
        end

        # @param record [Native::Record]
        # @return [Object]
        # @raise [DeserializationError] with the error as its cause
        def call(record)
          @callable.call(record)
        rescue DeserializationError
          raise
        rescue StandardError => e
          Deserializers.refuse(record, "#{e.message[0, 200]} (#{e.class})")
        end
      end

      # @param wanted [Symbol, #call, nil]
      # @return [#call, nil]
      def self.of(wanted)
        case wanted
        when nil, :raw then nil
        when :json then Json
        when :string then Utf8
        else CustomDeserializer.new(wanted)
        end
      end

      # @raise [DeserializationError]
      # @private
      def self.refuse(record, reason)
        raise DeserializationError, "the value of #{record.topic}/#{record.partition} @#{record.offset} cannot be " \
                                    "read: #{reason}"
      end
    end
  end
end
