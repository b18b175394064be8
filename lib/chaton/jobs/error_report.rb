# frozen_string_literal: true

require "json"
require "zlib"

module Chaton
  module Jobs
    # An error as a job document stores it.
    module ErrorReport
      # Characters of a message in the document, as with Sidekiq.
      MESSAGE_MAX = 10_000
      # Characters of a message in the log.
      LOGGED_MAX = 500

      # @return [String] UTF-8
      def self.message(error)
        text = error.message.to_s
        text = text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace) unless passes?(text)
        text.dup.force_encoding(Encoding::UTF_8).scrub[0, MESSAGE_MAX]
      rescue Exception => e # rubocop:disable Lint/RescueException -- `message` may be overridden and fail
        "(the error's message cannot be read: #{e.class})"
      end

      # @param wanted [Boolean, Integer, nil] all, how many lines, or none
      # @return [String, nil] JSON, deflated, as Base64
      def self.backtrace(error, wanted)
        return unless wanted && error.backtrace

        lines = wanted == true ? error.backtrace : error.backtrace.first([wanted.to_i, 0].max)
        lines = lines.map { |line| line.dup.force_encoding(Encoding::UTF_8).scrub }
        [Zlib::Deflate.deflate(JSON.generate(lines))].pack("m0")
      end

      # @param text [String, nil] as {backtrace} wrote it, or any Sidekiq
      def self.lines(text)
        text && JSON.parse(Zlib::Inflate.inflate(text.unpack1("m")))
      rescue Zlib::Error, JSON::ParserError
        nil
      end

      # Binary text is most often UTF-8.
      def self.passes?(text) = [Encoding::UTF_8, Encoding::US_ASCII, Encoding::BINARY].include?(text.encoding)
      private_class_method :passes?
    end
  end
end
