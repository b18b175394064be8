# frozen_string_literal: true

require_relative "../memory/program"
require_relative "../memory/launch_settings"
require_relative "command"
require_relative "run_summary"

module Chaton
  class CLI
    # chaton run [options] [--] COMMAND: runs any program with the allocator and heap settings of a server.
    class Run < Command
      # Words before a program's name.
      WRAPPERS = /\A(?:bundler?|exec|ruby|env)[\d.]*\z/
      # Programs whose next word tells what they do.
      GROUPS = %w[rails rake].freeze
      # The statuses that a shell returns.
      NOT_FOUND = 127
      NOT_EXECUTABLE = 126

      def self.options = %i[allocator eden].map { |name| Config::Options[name] }

      def self.switches = ["--quiet"]

      # @return [Boolean] what follows the first argument that is not a flag belongs to the program
      def self.wraps? = true

      # @param command [Array<String>]
      # @return [String] name under which its readings are stored
      def self.name_of(command)
        words = command.reject { |word| word.start_with?("-") || word.include?("=") }.map { |word| File.basename(word) }
        words = words.drop_while { |word| WRAPPERS.match?(word) }
        words = [File.basename(command.first)] if words.empty?
        words.first(GROUPS.include?(words.first) ? 2 : 1).join("-")
      end

      # @return [Integer] the program's exit status; 128 and the signal's number where one ended it
      def run
        command = @arguments.rest
        @arguments.rest_problem("there is no command to run: chaton run -- COMMAND") if command.empty?
        launch_settings = provide(command)
        @err.puts "chaton run: #{launch_settings.allocator}" if launch_settings.allocator.missed
        outcome = Memory::Program.new(command, launch_settings.variables).run
        keep(outcome)
        @err.puts RunSummary.new(command, outcome, launch_settings) unless @arguments.switch?("--quiet")
        outcome.exit_code
      rescue Errno::ENOENT
        refused(command, "there is no such command", NOT_FOUND)
      rescue Errno::EACCES, Errno::ENOEXEC => e
        refused(command, "it cannot be executed (#{e.class.name.split("::").last})", NOT_EXECUTABLE)
      end

      private

      # There is no work between which garbage could be collected, so Ruby decides when it collects.
      def provide(command)
        settings = settings_given
        @cache = Memory::HeapCache.new(root: Dir.pwd, work: "run-#{self.class.name_of(command)}")
        env = ENV.to_h
        allocator = Memory::Allocator.new(settings.allocator, env: env, background: true, mapped: [])
        Memory::LaunchSettings.new(settings, cache: @cache, env: env, allocator: allocator)
      end

      def settings_given
        sources = Config::Sources.new(@arguments.problems)
        @arguments.given.each do |name, value|
          option = Config::Options[name]
          sources.assign(:command_line, option, [value], Config::COMMAND_LINE, label: option.flags.last)
        end
        raise Config::Invalid, sources.problems unless sources.problems.empty?

        Config::MemorySettings.new(allocator: sources[:allocator] || :auto, eden: sources[:eden] || :auto,
                                   collect: :off)
      end

      def keep(outcome)
        reading = outcome.reading
        @cache.write(reading) if reading
      end

      def refused(command, reason, status)
        @err.puts "chaton run: #{command.first}: #{reason}"
        status
      end
    end
  end
end
