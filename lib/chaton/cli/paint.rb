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
  end
end
