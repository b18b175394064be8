# frozen_string_literal: true

# Not "digest" alone: that loads the class on first use, which fails when several threads do so at once
# ("Digest::Base cannot be directly inherited in Ruby").
require "digest/sha2"
require "json"
require_relative "limits"

module Chaton
  module Jobs
    # Turns options of Chaton into the member "chaton" of the document, and into the lock that the push acquires.
    class Extra
      # Hexadecimal digits of a lock's digest: 128 bits.
      DIGEST_DIGITS = 32

      # @param item [Hash{String=>Object}] the job; the options are taken out of it
      def initialize(item, now_s)
        @item = item
        @now_s = now_s
        @options = Options::EXTRA.to_h { |name| [name, item.delete(name)] }.compact
      end

      # Writes the member, if there is one.
      #
      # @return [Array(String, String, Float), nil] key, jid and seconds of the lock to acquire
      def apply
        return if @options.empty?

        extra = members
        @item["chaton"] = (@item["chaton"] || {}).merge(extra) unless extra.empty?
        return unless @options["unique_for"]

        [extra["lock"], @item["jid"], @options["unique_for"].to_f + wait_s]
      end

      private

      def members
        { "lock" => (lock if @options["unique_for"]),
          "until" => ((@options["unique_until"] || "success").to_s if @options["unique_for"]),
          "limits" => (limits if @options["limit"]),
          "expires_at" => (@now_s + wait_s + @options["expires_in"].to_f if @options["expires_in"]),
          "deadline" => @options["deadline"]&.to_f }.compact
      end

      # Locks and expiry of a scheduled job count from the time it is due.
      def wait_s = [(@item["at"] || @now_s) - @now_s, 0.0].max

      # Jobs are equal when class, arguments and queue are. Of an ActiveJob only its own arguments count.
      def lock
        name = @item["wrapped"] || @item["class"]
        args = @item["wrapped"] ? @item["args"].first&.fetch("arguments", nil) : @item["args"]
        digest = Digest::SHA256.hexdigest(JSON.generate([name, @item["queue"], args], max_nesting: false))
        "#{name}:#{digest[0, DIGEST_DIGITS]}"
      end

      def limits
        Limits.read(@options["limit"], @item["class"]).map { |limit| Limits.document(limit, @item) }
      end
    end
  end
end
