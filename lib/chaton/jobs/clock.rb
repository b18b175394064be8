# frozen_string_literal: true

module Chaton
  module Jobs
    # Times as each generation of the format writes them.
    module Clock
      # Since this generation times are integers of milliseconds.
      MILLISECONDS_FROM = 8
      # The generation that is written when nothing names another.
      FORMAT = 7

      # @param format [Integer] 6, 7 or 8
      # @return [Float, Integer] seconds, or milliseconds
      def self.stamp(format, time_s = now_s)
        format >= MILLISECONDS_FROM ? (time_s * 1000).round : time_s
      end

      # Reads a time that any generation wrote.
      #
      # @return [Float, nil] seconds
      def self.seconds(stamp)
        case stamp
        when Float then stamp
        when Integer then stamp / 1000.0
        when String then Float(stamp, exception: false) || iso8601(stamp)
        end
      end

      # By `Time.now`, which an application's tests set.
      def self.now_s = Time.now.to_f

      # The time when a job is due. As in Sidekiq, small numbers are seconds from now.
      #
      # @return [Float, nil] nil: now
      def self.due(interval)
        time_s = interval.to_f
        now = now_s
        time_s += now if time_s < 1_000_000_000
        time_s if time_s > now
      end

      def self.iso8601(text)
        require "time"
        Time.iso8601(text).to_f
      rescue ArgumentError
        nil
      end
      private_class_method :iso8601
    end
  end
end
