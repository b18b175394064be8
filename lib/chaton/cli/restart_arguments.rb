# frozen_string_literal: true

require_relative "../config/options"

module Chaton
  class CLI
    # The arguments that a restart repeats in the application's directory. If the command was typed in another
    # directory, relative paths and the configuration file would not be found there, so the arguments are adapted.
    module RestartArguments
      # @param argv [Array<String>] as typed
      # @param given [Hash{Symbol=>Object}] the same, by option
      # @param typed_in [String] directory
      def self.from(argv, given, plan:, typed_in:)
        return argv if typed_in == plan.root

        options = { **given.except(:rackup), config_file: plan.config_file || Config::Loader::NO_FILE }
        ["serve", *options.flat_map { |name, value| Config::Options[name].arguments(value) }, *given[:rackup]]
      end
    end
  end
end
