# frozen_string_literal: true

require_relative "../class_name"
require_relative "../types"

module Chaton
  module Config
    module Types
      # Names and values that are passed on unchanged: `kafka "socket.keepalive.enable" => true`.
      class Properties < Base
        # Allowed names.
        NAME = /\A[a-z][\w.-]*\z/

        def initialize = super("names and values, such as \"socket.keepalive.enable\" => true")

        def list? = true

        def cast(value)
          mismatch(value) unless value.is_a?(Hash)
          value.to_h do |name, one|
            mismatch(value) unless name.to_s.match?(NAME) && plain?(one)
            [name.to_s.freeze, one.to_s.freeze]
          end.freeze
        end

        # Only names are shown: a value may be a password.
        def show(values)
          names = Array(values).flat_map { |one| one.respond_to?(:keys) ? one.keys : [] }
          names.empty? ? "none" : names.join(", ")
        end

        private

        def plain?(value)
          case value
          when String, Symbol, Integer, Float, true, false then true
          else false
          end
        end

        # A value may be a secret.
        def mismatch(_value) = raise(Mismatch, "must be #{rule}")
      end

      # The settings of one topic.
      class TopicSettings < Properties
        def list? = false
      end

      # A topic's name, by Kafka's rule.
      class TopicName < Base
        PATTERN = /\A[a-zA-Z0-9._-]{1,249}\z/

        def initialize = super("a name of at most 249 letters, digits, dots, underscores and hyphens")

        def cast(value)
          text = value.to_s
          fits = (value.is_a?(String) || value.is_a?(Symbol)) && text.match?(PATTERN) && !%w[. ..].include?(text)
          fits ? text.dup.freeze : mismatch(value)
        end
      end

      # Records in a number of seconds: `throttle: [1000, 1.0]`.
      class ThrottleRate < Base
        RECORDS = (1..1_000_000_000)
        PER_S = (0.001..86_400.0)

        def initialize = super("records and seconds, such as [1000, 1.0]")

        def cast(value)
          records, per_s = value.is_a?(Array) ? value : [value, 1.0]
          mismatch(value) unless records.is_a?(Integer) && RECORDS.cover?(records)
          # Range#cover? raises for NaN from Ruby 4.1 on.
          mismatch(value) unless per_s.is_a?(Numeric) && !per_s.to_f.nan? && PER_S.cover?(per_s)
          [records, per_s.to_f].freeze
        end

        def show(value) = value ? "#{value[0]} in #{value[1]} s" : "none"
      end

      # How a value is made from a record's bytes.
      class Deserializer < Base
        # The built-in ones; raw keeps the bytes.
        NAMES = %i[json string raw].freeze

        def initialize = super(":json, :string, :raw, the name of a class or an object with call(record)")

        # @return [Symbol, String, #call, nil] a String names a class; nil: bytes as they are
        def cast(value)
          return if [nil, false].include?(value)

          built_in = NAMES.find { |name| name.to_s == value.to_s }
          return built_in == :raw ? nil : built_in if built_in

          # The name of a class is kept, so that a reloaded class is found.
          ClassName.of(value) || (value.respond_to?(:call) ? value : mismatch(value))
        end

        def show(value)
          case value
          when nil then "raw"
          when Symbol, String then value.to_s
          else value.class.name || "an object"
          end
        end
      end
    end
  end
end
