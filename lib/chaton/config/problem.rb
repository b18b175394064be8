# frozen_string_literal: true

require_relative "../errors"

module Chaton
  module Config
    # Where a setting was written: a file and a line, or another source ("command line") without one.
    Origin = Struct.new(:file, :line) do
      # @return [String] "config/chaton.rb:3"
      def to_s = [file, line].compact.join(":")
    end

    # Where options are written.
    COMMAND_LINE = Origin.new("command line").freeze

    # One mistake in a configuration.
    Problem = Struct.new(:origin, :message, :suggestion) do
      # @return [String] or another source
      def file = origin.file

      def line = origin.line

      # @return [String] the whole sentence
      def to_s
        hint = suggestion ? "; did you mean #{suggestion}?" : ""
        "#{origin}: #{message}#{hint}"
      end
    end

    # A configuration, or a command line, with mistakes.
    class Invalid < ConfigError
      attr_reader :problems

      def initialize(problems)
        @problems = problems.uniq.freeze
        count = @problems.size == 1 ? "an error" : "#{@problems.size} errors"
        where = @problems.all? { |problem| problem.origin == COMMAND_LINE } ? COMMAND_LINE : "configuration"
        super("the #{where} has #{count}\n#{@problems.map { |problem| "  #{problem}" }.join("\n")}")
      end
    end
  end
end
