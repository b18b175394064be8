# frozen_string_literal: true

require_relative "evaluation"
require_relative "problem"

module Chaton
  module Config
    # Reads the files of a configuration, and knows which line is being run.
    class FileReader
      def initialize(sources, root:)
        @sources = sources
        @root = root
        @paths = {}
        @open = []
        @over = false
      end

      def over? = @over

      # Reads the first file, and those it loads.
      def run(path, dsl)
        file(path, dsl, COMMAND_LINE)
      ensure
        @over = true
      end

      # @param path [String] relative to the application's directory
      def file(path, dsl, asked_at)
        full = File.expand_path(path, @root)
        return @sources.problem(asked_at, "#{shown(full)} loads itself") if @open.include?(full)

        text = text_of(full, asked_at)
        evaluate(full, text, dsl) if text
      end

      # @return [Origin] the line of a configuration file that is being run
      def here = place(caller_locations(2)) || Origin.new("the configuration")

      # @return [Boolean] whether the application's bundle has a gem
      def gem?(name)
        Gem.loaded_specs.key?(name) || File.read(File.join(@root, "Gemfile.lock")).include?("\n    #{name} (")
      rescue SystemCallError, ArgumentError
        false
      end

      private

      def text_of(full, asked_at)
        File.read(full)
      rescue SystemCallError => e
        @sources.problem(asked_at, "#{shown(full)} cannot be read: #{e.message.sub(/ @ .*/, "")}")
        nil
      end

      def evaluate(full, text, dsl)
        @paths[full] = shown(full)
        @open << full
        Evaluation.run(dsl, text, full)
        nil
      rescue SyntaxError => e
        line = e.message[/^#{Regexp.escape(full)}:(\d+)/, 1]&.to_i
        @sources.problem(Origin.new(shown(full), line), "this is not valid Ruby: #{syntax(e)}")
      rescue ScriptError, StandardError => e
        reason = e.message.lines.first.to_s.chomp
        @sources.problem(place(e.backtrace_locations) || Origin.new(shown(full)), "#{e.class}: #{reason}")
      ensure
        @open.pop
      end

      # The parser's first sentence, without the path.
      def syntax(error)
        line = error.message.lines.find { |one| one.include?("syntax error") } || error.message.lines.first
        line.to_s[/(syntax error.*)/, 1] || line.to_s.chomp
      end

      def place(locations)
        location = locations&.find { |one| @paths.key?(one.path) }
        location && Origin.new(@paths[location.path], location.lineno)
      end

      def shown(full) = full.delete_prefix("#{@root}/")
    end
  end
end
