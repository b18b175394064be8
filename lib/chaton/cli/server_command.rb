# frozen_string_literal: true

require_relative "command"
require_relative "servers"

module Chaton
  class CLI
    # The base of commands that talk to a running server.
    class ServerCommand < Command
      def self.options = %i[config_file environment control_socket].map { |name| Config::Options[name] }

      private

      # @raise [ControlError]
      def ask(command, path = control_socket) = Control::Client.new(path).call(command)

      # The options that lead to the server.
      def given = @arguments.given

      # @raise [ControlError] when several servers run in the directory
      def control_socket
        return control_sockets.first unless control_sockets.size > 1

        names = control_sockets.map { |path| "  --control-socket #{path.delete_prefix("#{Dir.pwd}/")}" }
        raise ControlError, "several servers run in this directory; name one of them:\n#{names.join("\n")}"
      end

      # The given path, or that of the configuration, or those on which servers listen in this directory.
      def control_sockets = @control_sockets ||= find_control_sockets

      def find_control_sockets
        further = @arguments.rest
        @arguments.rest_problem("takes no argument, not #{further.first.inspect}") unless further.empty?
        named = given[:control_socket]
        return [File.expand_path(named)] if named && @arguments.problems.empty?

        plan = Config.load(given, problems: @arguments.problems)
        unless plan.control_socket
          raise ControlError, "control_socket is off in the configuration; use signals and the pidfile instead"
        end
        return [plan.control_socket] if plan.control_socket_given?

        listening = Servers.listening(plan.root)
        listening.empty? ? [plan.control_socket] : listening
      end
    end
  end
end
