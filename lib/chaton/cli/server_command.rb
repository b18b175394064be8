# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    # The base of commands that talk to a running server.
    class ServerCommand < Command
      def self.options = %i[config_file environment control_socket].map { |name| Config::Options[name] }

      private

      # @return [Hash{String=>Object}] the server's answer
      # @raise [ControlError]
      def ask(command)
        require_relative "../control"
        Control::Client.new(control_socket).call(command)
      end

      # The options that lead to the server.
      def given = @arguments.given

      # The given path, or that of the configuration.
      def control_socket
        further = @arguments.rest
        @arguments.rest_problem("takes no argument, not #{further.first.inspect}") unless further.empty?
        named = given[:control_socket]
        return File.expand_path(named) if named && @arguments.problems.empty?

        Config.load(given, problems: @arguments.problems).control_socket ||
          raise(ControlError, "control_socket is off in the configuration; use signals and the pidfile instead")
      end
    end
  end
end
