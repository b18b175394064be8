# frozen_string_literal: true

require "time"

module Chaton
  class CLI
    module Streams
      # Formats records, as a line for people and as data for programs.
      module RecordFormat
        # Characters that could move the cursor of a terminal or hide text.
        CONTROL = /[[:cntrl:]]/

        def self.data(record)
          { topic: record.topic, partition: record.partition, offset: record.offset,
            timestamp: record.timestamp_ms.negative? ? nil : time(record), key: bytes(record.key),
            value: bytes(record.raw), headers: headers(record.headers) }
        end

        # @return [String] "events/3 @1200  2026-01-31T12:00:00.000Z  key  value  {name=value}"
        def self.line(record)
          parts = ["#{record.topic}/#{record.partition} @#{record.offset}",
                   record.timestamp_ms.negative? ? "-" : time(record), text(record.key), text(record.raw)]
          headers = record.headers.flat_map do |name, values|
            Array(values.nil? ? [nil] : values).map { |value| "#{text(name)}=#{text(value)}" }
          end
          parts << "{#{headers.join(", ")}}" unless headers.empty?
          parts.join("  ")
        end

        # @return [String] with control characters escaped
        def self.text(raw)
          return "-" if raw.nil?

          utf8 = raw.dup.force_encoding(Encoding::UTF_8)
          return raw.b.inspect unless utf8.valid_encoding?

          utf8.gsub(CONTROL) { |one| one.dump[1..-2] }
        end

        # @return [String, Hash{Symbol=>String}, nil] a String if it is text
        def self.bytes(raw)
          return if raw.nil?

          utf8 = raw.dup.force_encoding(Encoding::UTF_8)
          utf8.valid_encoding? ? utf8 : { base64: [raw].pack("m0") }
        end

        def self.headers(headers)
          headers.to_h do |name, value|
            [text(name), value.is_a?(Array) ? value.map { |one| bytes(one) } : bytes(value)]
          end
        end

        def self.time(record) = Time.at(0, record.timestamp_ms, :millisecond).utc.iso8601(3)
        private_class_method :headers, :time
      end
    end
  end
end
