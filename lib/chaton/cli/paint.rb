# frozen_string_literal: true

module Chaton
  class CLI
    # Colours, only where a terminal shows them and nobody has switched them off (NO_COLOR, TERM=dumb).
    class Paint
      CODES = { bold: 1, dim: 2, reverse: 7, red: 31, green: 32, yellow: 33, cyan: 36 }.freeze

      # @return [Boolean] whether it is a terminal that understands control sequences
      def self.terminal?(io, env: ENV)
        io.respond_to?(:tty?) && io.tty? && !["", "dumb"].include?(env["TERM"].to_s)
      end

      def self.for(io, env: ENV) = new(terminal?(io, env: env) && env["NO_COLOR"].to_s.empty?)

      def initialize(wanted)
        @wanted = wanted
      end

      # @param styles [Array<Symbol>] of CODES
      def call(text, *styles)
        return text if !@wanted || styles.empty? || text.empty?

        "\e[#{styles.map { |style| CODES.fetch(style) }.join(";")}m#{text}\e[0m"
      end
    end

    # Bars and small curves of characters: of Unicode's block elements where the terminal's locale is UTF-8.
    class Glyphs
      LEVELS = { true => [" ", *"▁".."█"].freeze, false => " .:-=+*#@".chars.freeze }.freeze
      BARS = { true => %w[█ ░].freeze, false => ["#", "-"].freeze }.freeze

      def initialize(unicode: Encoding.default_external == Encoding::UTF_8)
        @levels = LEVELS.fetch(unicode)
        @full, @empty = BARS.fetch(unicode)
      end

      # @param share [Numeric] of the whole; what is above 1 fills the bar
      def bar(share, width)
        filled = (share.clamp(0, 1) * width).round
        (@full * filled) + (@empty * (width - filled))
      end

      # @param width [Integer] the last so many are shown
      # @return [String] a character for each, as high as its share of the highest
      def curve(values, width)
        shown = values.last(width)
        highest = shown.max.to_f
        line = shown.map { |value| @levels[highest.zero? ? 0 : (value / highest * (@levels.size - 1)).ceil] }.join
        line.rjust(width)
      end
    end
  end
end
