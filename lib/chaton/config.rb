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
    # @param env [ENV, Hash{String=>String}] its RACK_ENV is set to the environment that results
    # @param root [String] the application's directory
    # @param problems [Array<Problem>] found before, to be reported with the others
    # @return [Plan]
    # @raise [Invalid] with every problem there is
    def self.load(given = {}, env: ENV, root: Loader.working_directory, problems: [])
      Loader.new(given, env: env, root: root, problems: problems).plan
    end
  end
end
