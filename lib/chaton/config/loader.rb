# frozen_string_literal: true

require_relative "check"
require_relative "sources"
require_relative "dsl"
require_relative "plan_builder"
require_relative "file_reader"
require_relative "roles"
require_relative "sidekiq_file"
require_relative "solid_queue_files"

module Chaton
  module Config
    # Reads all sources of a configuration, command line, file and environment, and makes the plan.
    class Loader
      # The configuration file that is read by default.
      OWN_FILE = "config/chaton.rb"
      # The file name that means "none".
      NO_FILE = "-"
      # The options of a process that only enqueues, produces and broadcasts.
      CLIENT_SCOPES = %i[jobs streams topic live].freeze
      # An application that has this file is one of Rails.
      RAILS_FILE = "config/environment.rb"

      # The current directory. A symbolic link stays as it was typed, so that after a deployment that moves the link its
      # new target is used.
      def self.working_directory(env = ENV)
        typed = env["PWD"]
        typed && File.identical?(typed, Dir.pwd) ? typed : Dir.pwd
      end

      # @param given [Hash{Symbol=>Object}] options of the command line
      # @param client [Boolean] whether the process only enqueues and produces: mistakes in the server's settings are
      #   warnings
      def initialize(given, env:, root:, problems: [], client: false)
        @given = given
        @env = env
        # Before export changes them.
        @environments = Options[:environment].env.to_h { |name| [name, env[name].to_s] }
        @environments.delete_if { |_, value| value.empty? }
        @root = root
        @client = client
        @sources = Sources.new(problems, only: (CLIENT_SCOPES if client))
      end

      # @raise [Invalid]
      def plan
        read_command_line
        # The file may read it.
        export
        file = config_file
        read_file(file) if file
        warn_of_difference
        read_environment
        export
        roles = Roles.new(@sources, @sources[:workers] || Options[:workers].default)
        sidekiq_file = read_sidekiq_file if roles.jobs?
        check(roles) unless @client
        raise Invalid, @sources.problems unless @sources.problems.empty?

        PlanBuilder.new(@sources, root: @root, environment: environment, config_file: file, roles: roles,
                                  sidekiq_file: sidekiq_file).plan
      end

      private

      def check(roles)
        roles.check
        Check.new(@sources).run
      end

      def read_command_line
        @given.each do |name, written|
          option = Options[name]
          values = option.type.list? ? Array(written) : [written]
          label = option.flags.last || name.to_s
          values.each { |value| @sources.assign(:command_line, option, [value], COMMAND_LINE, label: label) }
        end
      end

      def read_environment
        [*Options::EVERYWHERE, *Options::FIXED].each do |option|
          # OpenTelemetry's variables are there for other programs too.
          next if option.scope == :traces && !@sources.section?(:traces)

          name, value = option.name == :environment ? environment_variable : option.from(@env)
          # A variable that is overridden may have any value.
          next if value.nil? || @sources.set?(option.target)

          @sources.assign(:environment, option, [value], Origin.new("environment variable #{name}"))
        end
      end

      # Read before the other variables, because the name of the configuration file may depend on it.
      def environment
        @sources[:environment] || environment_variable&.last || Options[:environment].default
      end

      # Rails reads RAILS_ENV first, other applications APP_ENV, as Puma does.
      #
      # @return [Array(String, String), nil] the variable that names the environment, and its value
      def environment_variable
        (rails? ? @environments.to_a.reverse : @environments).first
      end

      def rails?
        root = File.expand_path(@sources[:directory] || ".", @root)
        !Config.rails_environment.nil? || File.file?(File.join(root, RAILS_FILE))
      end

      # RACK_ENV is for the application. A variable that the user has set to another environment is changed only if
      # the command line or the file names the environment. Rails does not read APP_ENV: there it is the application's.
      def export
        written = @sources.written?(:environment)
        @env["RACK_ENV"] = environment
        @env["RAILS_ENV"] = environment if written && @env["RAILS_ENV"]
        @env["APP_ENV"] = environment if written && @env["APP_ENV"] && !rails?
      end

      def warn_of_difference
        return if @sources.written?(:environment) || @environments.values.uniq.size < 2

        @sources.warning("#{@environments.map { |pair| pair.join("=") }.join(", ")}: the environment is that of " \
                         "#{environment_variable.first}. Set them to the same, or unset the others")
      end

      # The files of Sidekiq and Solid Queue set only what no other source sets, so they are read last.
      def read_sidekiq_file
        root = File.expand_path(@sources[:directory] || ".", @root)
        SolidQueueFiles.new(@sources, root: root, environment: environment).read
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
