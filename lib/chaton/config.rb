# frozen_string_literal: true

require_relative "config/loader"

module Chaton
  # Settings: each is an {Option}, defined once in {Options}; files, command line and environment give them
  # values; the result is a frozen {Plan}.
  module Config
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

    # Reads the configuration in a process that is not a Chaton server, and leaves ENV as it is: the application is
    # loaded already, and so is its environment.
    #
    # @return [Plan]
    # @raise [Invalid]
    def self.of_client
      load({ environment: rails_environment }.compact, env: ENV.to_h)
    end
  end
end
