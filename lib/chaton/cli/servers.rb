# frozen_string_literal: true

require_relative "../config"
require_relative "../config/control_socket"
require_relative "../control"

module Chaton
  class CLI
    # Finds the servers that run in the application's directory, by their control sockets.
    module Servers
      class << self
        # @return [Array<String>] the usual paths at which a server listens
        def listening(root = Config::Loader.working_directory)
          Config::ControlSocket.all(root).select { |path| listens?(path) }
        end

        # The configuration of the server here, for commands that open its store or log: the environment in which it
        # runs is most often not that of the shell in which a command is typed.
        #
        # @param given [Hash{Symbol=>Object}] options of the command line
        # @return [Hash{String=>Object}] environment and store as `chaton status` gives them; empty where the command
        #   names its own, or no server answers
        def settings(given)
          return {} if named?(given)

          status = listening.filter_map { |path| status(path) }.max_by { |one| one["store"] ? 1 : 0 }
          status ? status.slice("environment", "store") : {}
        end

        private

        def named?(given)
          %i[environment store broker].any? { |name| given.key?(name) } || Config::Options[:environment].from(ENV)
        end

        def status(path)
          Control::Client.new(path).call("status")
        rescue ControlError
          nil
        end

        # One of another user does, too.
        def listens?(path)
          UNIXSocket.new(path).close
          true
        rescue Errno::EACCES
          true
        rescue SystemCallError, ArgumentError
          false
        end
      end
    end
  end
end
