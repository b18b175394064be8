# frozen_string_literal: true

require "json"

module Chaton
  class CLI
    module Profile
      # One worker's answer: a line of JSON, and for a report the profile.
      class Answer
        # @param bytes [String] all that it sent
        # @return [Answer, nil] nil when it is not complete
        def self.parse(bytes)
          line, newline, body = bytes.partition("\n")
          return if newline.empty?

          header = JSON.parse(line)
          whole = header.is_a?(Hash) && body.bytesize == header.fetch("bytes", 0)
          new(header, body.force_encoding(Encoding::UTF_8)) if whole
        rescue JSON::ParserError
          nil
        end

        # @return [Hash{String=>Object}]
        attr_reader :header
        # @return [String] JSON of a profile; empty unless it was asked for
        attr_reader :body

        # @param header [Hash{String=>Object}]
        def initialize(header, body)
          @header = header
          @body = body
        end

        # @return [Integer]
        def worker = @header["worker"]

        def pid = @header["pid"]

        def ok? = @header["ok"] == true

        # @return [String, nil] why it is not ok
        def error = @header["error"]

        # @return [Hash{String=>Object}] of its tracer, see {Memory::TracerControl}
        def status = @header.except("ok", "bytes")
      end
    end
  end
end
