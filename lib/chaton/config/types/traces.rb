# frozen_string_literal: true

require_relative "../types"

module Chaton
  module Config
    module Types
      # The address of a collector of traces.
      class TracesEndpoint < Base
        # Where collectors take spans, when the address has no path.
        PATH = "/v1/traces"

        def initialize
          super("an address such as http://127.0.0.1:4318 or https://collector/v1/traces, without a user and a " \
                "password, which belong into headers")
        end

        def cast(value)
          # Needed here only, and slow to load for a short command.
          require "uri"
          uri = URI.parse(value.to_s)
          fits = uri.is_a?(URI::HTTP) && !uri.host.to_s.empty? && uri.userinfo.nil?
          return mismatch(value) unless fits

          uri.path = PATH if ["", "/"].include?(uri.path)
          uri.to_s.freeze
        rescue URI::InvalidURIError
          raise Mismatch, "must be #{rule}"
        end

        private

        # It may hold a password.
        def mismatch(_value) = raise(Mismatch, "must be #{rule}")
      end

      # Names and values: a Hash, or "name=value,name=value" with percent signs for others, as OpenTelemetry's
      # environment variables have them.
      class NamedValues < Base
        def initialize(rule = "a Hash, or name=value,name=value") = super

        def cast(value)
          pairs = value.is_a?(Hash) ? value.to_a : split(value)
          pairs.to_h { |name, text| [part(name), part(text)] }.freeze
        end

        def show(value) = value.nil? || value.empty? ? "none" : value.map { |pair| pair.join("=") }.join(", ")

        private

        def split(value)
          raise_mismatch unless value.is_a?(String)
          value.split(",").map(&:strip).reject(&:empty?).map do |pair|
            name, text = pair.split("=", 2).map { |part| decode(part.strip) }
            raise_mismatch if text.nil? || name.empty?
            [name, text]
          end
        end

        # URI has this from Ruby 3.2 on.
        def decode(text)
          text.b.gsub(/%\h\h/) { |code| code[1, 2].hex.chr }.force_encoding(Encoding::UTF_8).scrub("?")
        end

        def part(value)
          text = value.to_s
          text.empty? || text.match?(/[[:cntrl:]]/) ? raise_mismatch : text.dup.freeze
        end

        def raise_mismatch = raise(Mismatch, "must be #{rule}")
      end

      # Headers, whose values are never shown.
      class SecretHeaders < NamedValues
        # RFC 9110, section 5.6.2.
        NAME = /\A[\w!#$%&'*+.^`|~-]+\z/

        def initialize = super("a Hash of headers, or name=value,name=value, with names such as x-api-key")

        # What is no name may be a password.
        def cast(value) = super.each_key { |name| raise_mismatch unless name.match?(NAME) }

        def show(value) = value.nil? || value.empty? ? "none" : "given"
      end
    end
  end
end
