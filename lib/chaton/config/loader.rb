# frozen_string_literal: true

require_relative "check"
require_relative "sources"
require_relative "dsl"
require_relative "plan_builder"
require_relative "file_reader"
require_relative "roles"
require_relative "sidekiq_file"

module Chaton
  module Config
    # Reads all sources of a configuration, command line, file and environment, and makes the plan.
    class Loader
      # The configuration file that is read by default.
      OWN_FILE = "config/chaton.rb"
      # The file name that means "none".
      NO_FILE = "-"
      COMMAND_LINE = Origin.new("command line").freeze

      # The current directory. A symbolic link stays as it was typed, so that after a deployment that moves the link its
      # new target is used.
      #
      # @param env [ENV, Hash{String=>String}]
      # @return [String]
      def self.working_directory(env = ENV)
        typed = env["PWD"]
        typed && File.identical?(typed, Dir.pwd) ? typed : Dir.pwd
      end

      # @param given [Hash{Symbol=>Object}] options of the command line
      # @param env [ENV, Hash{String=>String}]
      # @param problems [Array<Problem>]
      def initialize(given, env:, root:, problems: [])
        @given = given
        @env = env
        @root = root
        @sources = Sources.new(problems)
      end

      # @return [Plan]
      # @raise [Invalid]
      def plan
        read_command_line
        # The file may read it.
        export(environment)
        file = config_file
        read_file(file) if file
        read_environment
        export(environment)
        roles = Roles.new(@sources, @sources[:workers] || Options[:workers].default)
        sidekiq_file = read_sidekiq_file if roles.jobs?
        roles.check
        Check.new(@sources).run
        raise Invalid, @sources.problems unless @sources.problems.empty?

        PlanBuilder.new(@sources, root: @root, environment: environment, config_file: file, roles: roles,
                                  sidekiq_file: sidekiq_file).plan
      end

      private

      def read_command_line
        @given.each do |name, written|
          option = Options[name]
          values = option.type.list? ? Array(written) : [written]
          label = option.flags.last || name.to_s
          values.each { |value| @sources.assign(:command_line, option, [value], COMMAND_LINE, label: label) }
        end
      end

      def read_environment
        Options::ALL.each do |option|
          # OpenTelemetry's variables are there for other programs too.
          next if option.scope == :traces && !@sources.section?(:traces)

          name, value = option.from(@env)
          # A variable that is overridden may have any value.
          next if value.nil? || @sources.set?(option.target)

          @sources.assign(:environment, option, [value], Origin.new("environment variable #{name}"))
        end
      end

      # Read before the other variables, because the name of the configuration file may depend on it.
      def environment
        @sources[:environment] || Options[:environment].from(@env)&.last || Options[:environment].default
      end

      def export(name)
        @env["RACK_ENV"] = name
        # Code that reads one of these must find the same environment.
        %w[RAILS_ENV APP_ENV].each { |variable| @env[variable] = name if @env[variable] }
      end

      # Sidekiq's file sets only what no other source sets, so it is read last.
      def read_sidekiq_file
        root = File.expand_path(@sources[:directory] || ".", @root)
        SidekiqFile.new(@sources, root: root, environment: environment, env: @env).read
      end

      def config_file
        named = @sources[:config_file] || Options[:config_file].from(@env)&.last
        return if named == NO_FILE
        return File.expand_path(named, @root) if named

        [OWN_FILE, "config/puma/#{environment}.rb", "config/puma.rb"]
          .map { |path| File.join(@root, path) }.find { |path| File.file?(path) }
      end

      def read_file(path)
        reader = FileReader.new(@sources, root: @root)
        reader.run(path, DSL.new(@sources, reader))
      end
    end
  end
end
