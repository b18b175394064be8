# frozen_string_literal: true

require_relative "types/text"

module Chaton
  module Config
    # Whose word counts about the client of a request.
    class BelievedPeers
      def initialize(plan)
        @web = plan.web
        @tls = plan.tls?
        @given = Array(@web.trusted_proxies).flatten
      end

      # @return [Array<String>] networks of the proxies that name the client
      def proxies = @given - Types::TrustedProxies::WORDS

      # @return [Hash{Symbol=>Object}] as the web engine takes it
      def engine
        { proxies: proxies, header: @web.forwarded_header, others: others,
          sends_files: !Array(@web.sendfile_roots).empty? }
      end

      def to_s
        return "only what #{proxies.join(", ")} say in #{header}" unless proxies.empty?

        { hidden: "nobody", passed_on: "anybody: the application gets X-Forwarded-… as clients send it",
          hidden_over_tcp: "nobody over TCP, because of the https:// bind (see trusted_proxies)" }.fetch(others)
      end

      private

      # What happens to the headers of peers that are no proxies.
      def others
        return :hidden if proxies.any? || @given.include?("none")

        @given.empty? && @tls ? :hidden_over_tcp : :passed_on
      end

      def header = @web.forwarded_header == :forwarded ? "Forwarded" : "X-Forwarded-For"
    end
  end
end
