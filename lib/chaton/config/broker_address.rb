# frozen_string_literal: true

require_relative "types"

module Chaton
  module Config
    # Functions on the address of a log of records.
    module BrokerAddress
      # Scheme of a log on this machine.
      LOCAL = "log://"

      # @param root [String] the directory a relative path starts from
      # @return [String]
      def self.under(url, root)
        url.start_with?(LOCAL) ? "#{LOCAL}#{File.expand_path(url.delete_prefix(LOCAL), root)}".freeze : url
      end
    end

    module Types
      # `broker "log://storage/streams"`, `broker "kafka://host:9092,other:9092"`.
      class BrokerUrl < Base
        # A host, or an IPv6 address in brackets, and a port.
        HOST = /(?:\[[\h:.%]+\]|[\w.-]+)(?::\d{1,5})?/
        # Several of them.
        HOSTS = /\A#{HOST}(?:,#{HOST})*\z/
        # Schemes of an address of Kafka.
        KAFKA = %w[kafka kafka+ssl].freeze

        def initialize
          super("log://PATH (on this machine), kafka://HOST:PORT,HOST:PORT or kafka+ssl://HOST:PORT (TLS)")
        end

        # @return [String]
        def cast(value)
          text = value.to_s
          scheme, rest = text.split("://", 2)
          return text.dup.freeze if scheme == "log" && rest.to_s.match?(/\A[^\s?]+\z/)
          return text.chomp("/").freeze if KAFKA.include?(scheme) && rest.to_s.chomp("/").match?(HOSTS)

          # The part before an @ may contain a password.
          raise Mismatch, "must be #{rule}, not #{text.sub(/.*@/, "***@").inspect}#{hint(text, scheme, rest)}"
        end

        private

        def hint(text, scheme, rest)
          return ": username and password are options of their own" if text.include?("@")
          return ": write kafka+ssl://#{rest}" if %w[ssl sasl_ssl kafkas kafka-ssl].include?(scheme)
          return ": write log://#{rest}" if scheme == "file"
          return ": write kafka://#{text}" if rest.nil? && text.match?(/\A[\w.-]+:\d+(,|\z)/)

          rest.nil? && text.include?("/") ? ": write log://#{text}" : ""
        end
      end
    end
  end
end
