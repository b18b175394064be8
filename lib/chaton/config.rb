# frozen_string_literal: true

require_relative "config/loader"

module Chaton
  # Settings: each is an {Option}, defined once in {Options}; files, command line and environment give them
  # values; the result is a frozen {Plan}.
  module Config
    # More than these are not listed in an error.
    NAMES_SHOWN = 24

    # Reads all sources and checks them.
    #
    # @param given [Hash{Symbol=>Object}] options of the command line by name; one that may be repeated has an
    #   Array of values
    # @param env [ENV, Hash{String=>String}] its RACK_ENV is set to the environment that results, and so is its
    #   RAILS_ENV if the command line or the file names one
    # @param root [String] the application's directory
    # @param problems [Array<Problem>] found before, to be reported with the others
    # @return [Plan]
    # @raise [Invalid] with every problem there is
    def self.load(given = {}, env: ENV, root: Loader.working_directory, problems: [])
      Loader.new(given, env: env, root: root, problems: problems).plan
    end

    # @return [String, nil] the environment of the Rails application that is loaded in this process
    def self.rails_environment = (::Rails.env.to_s if defined?(::Rails.env))

    # @return [String] the directory of the Rails application that is loaded in this process, else the current one
    def self.root
      rails = ::Rails.root if defined?(::Rails.root) && ::Rails.application
      rails ? rails.to_s : Loader.working_directory
    end

    # Reads the configuration in a process that is not a Chaton server, and leaves ENV as it is: the application is
    # loaded already, and so is its environment. A mistake in the server's settings is a warning of the plan.
    #
    # @param given [Hash{Symbol=>Object}] what the application has set, by option
    # @return [Plan]
    # @raise [Invalid] for mistakes in the settings of jobs and streams
    def self.of_client(given = {})
      Loader.new({ environment: rails_environment, **given }.compact, env: ENV.to_h, root: root, client: true).plan
    end

    # @param section [Symbol] :jobs or :streams
    # @param given [Hash{Symbol=>Object}] what an application sets in Ruby, by option
    # @return [Hash{Symbol=>Object}] the same values, checked
    # @raise [ConfigError]
    def self.check(section, given)
      allowed = section == :jobs ? JobsBuilder::IN_RUBY : StreamsBuilder::IN_RUBY
      what = "Chaton::#{section.capitalize}.configure"
      given.to_h do |name, value|
        # Options of streams have the same keywords as those of jobs.
        known(what, name, allowed.map { |option| Options[option].written }, section) unless allowed.include?(name)
        [name, Options[name].cast([value])]
      rescue Types::Mismatch => e
        raise ConfigError, "#{what}: #{name} #{e.message}"
      end
    end

    # @param what [String] a method that takes settings
    # @param name [Symbol] one that it was given
    # @param names [Array<String, Symbol>] those that it takes
    # @param scope [Symbol] of these
    # @return [void]
    # @raise [ConfigError] which suggests the nearest, if it is none of them
    def self.known(what, name, names, scope = :top)
      return if names.include?(name)

      fixed = Options.fixed(name, scope)
      raise ConfigError, "#{what}: #{fixed.refusal(name)}" if fixed

      nearest = Nearest.to(name, names)
      list = names.size > NAMES_SHOWN ? "options of the configuration" : names.join(", ")
      raise ConfigError, "#{what} takes #{list}, not #{name}#{"; did you mean #{nearest}?" if nearest}"
    end
  end
end
