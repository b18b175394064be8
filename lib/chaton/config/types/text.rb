# frozen_string_literal: true

require "ipaddr"
require_relative "../nearest"
require_relative "../types"

module Chaton
  module Config
    module Types
      # A word or a sentence.
      class Word < Base
        def initialize(rule = "a word", pattern: /\S/)
          @pattern = pattern
          super(rule)
        end

        def cast(value)
          fits = (value.is_a?(String) || value.is_a?(Symbol)) && value.to_s.match?(@pattern)
          fits ? value.to_s.dup.freeze : mismatch(value)
        end
      end

      # A word that is never printed.
      class Secret < Word
        def show(value) = value.nil? ? "none" : "given"

        private

        def mismatch(_value) = raise(Mismatch, "must be #{rule}")
      end

      # The address of a StatsD server: `udp://127.0.0.1:8125`.
      class StatsdAddress < Word
        # Used if none is named.
        PORT = 8125
        # Host and port.
        PATTERN = %r{\Audp://(\[[\h:.]+\]|[\w.-]+)(?::(\d{1,5}))?\z}

        def initialize = super("a URI such as udp://127.0.0.1:#{PORT}", pattern: PATTERN)

        # @return [String] with a port
        def cast(value)
          host, port = super.match(PATTERN).captures
          number = (port || PORT).to_i
          number.between?(1, 65_535) ? "udp://#{host}:#{number}" : mismatch(value)
        end
      end

      # Several words, on one line or several.
      class Words < Word
        # Words on one line.
        LIMIT = 100

        def arguments = 1..LIMIT

        def list? = true

        def cast(*values) = values.flatten.map { |value| super(value.respond_to?(:to_path) ? value.to_path : value) }

        def show(values) = Array(values).empty? ? "none" : values.join(", ")
      end

      # Networks of addresses, on one line or several.
      class Networks < Words
        # What the word stands for, which is what Rails and Rack take for proxies.
        PRIVATE = %w[127.0.0.0/8 ::1/128 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7].freeze

        def initialize(rule = "addresses, networks such as 10.0.0.0/8, or private") = super

        # @return [Array<String>] addresses with the number of bits that count
        def cast(*values) = super.flat_map { |text| text == "private" ? PRIVATE : network(text) }

        private

        def network(text)
          address = IPAddr.new(text)
          "#{address}/#{address.prefix}"
        rescue IPAddr::Error
          nearest = Nearest.to(text, words)
          raise Mismatch, "must be #{rule}, not #{text.inspect}#{"; did you mean #{nearest}?" if nearest}"
        end

        def words = ["private"]
      end

      # The proxies that are believed, or in a word that there are none or that anybody is one.
      class TrustedProxies < Networks
        # What may stand alone instead of networks.
        WORDS = %w[none any].freeze

        def initialize = super("addresses, networks such as 10.0.0.0/8, private, none or any")

        # @return [Array<String>] networks, or one of {WORDS}
        def cast(*values)
          word = WORDS.find { |one| values.flatten.map(&:to_s) == [one] }
          word ? [word] : super
        end

        def show(values) = Array(values).empty? ? "not set" : super

        private

        def words = [*super, *WORDS]
      end

      # A file or directory; a relative one starts in the application's directory.
      class Path < Base
        # Values that mean "no path".
        NONE = [nil, false, "none"].freeze

        # @param none [Boolean] whether there may be none
        def initialize(none: false)
          @none = none
          super("a path#{", or \"none\"" if none}")
        end

        def cast(value)
          return if @none && NONE.include?(value)

          path = value.respond_to?(:to_path) ? value.to_path : value
          path.is_a?(String) && !path.empty? && !path.include?("\0") ? path.dup.freeze : mismatch(value)
        end
      end

      # The directory of static files, or how it is found.
      class StaticRoot < Path
        def initialize
          super
          @rule = "a path, auto or off"
        end

        # @return [String, Symbol] a path, :auto or :off
        def cast(value)
          return :off if [nil, false, "none"].include?(value)

          %i[auto off].find { |word| word.to_s == value.to_s } || super
        end
      end

      # Files for standard output and standard error, and whether they are appended to.
      class OutputFiles < Base
        def initialize = super("a path for standard output, one for standard error, and true to append")

        def arguments = 1..3

        # @return [Array(String, String, Boolean)] a path is nil where nothing is redirected
        def cast(out, err = nil, append = false)
          path = Path.new(none: true)
          [path.cast(out), path.cast(err), append ? true : false].freeze
        end

        def show(value) = value ? value.first(2).compact.join(", ") : "none"
      end
    end
  end
end
