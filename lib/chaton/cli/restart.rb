# frozen_string_literal: true

require_relative "server_command"

module Chaton
  class CLI
    # chaton restart: loads the code on disk; with --full also the configuration of the main process.
    class Restart < ServerCommand
      def self.switches = ["--full"]

      def run
        full = @arguments.switch?("--full")
        answer = ask(full ? "restart" : "phased-restart")
        how = full ? "starts again in place" : "loads the new code"
        @out.puts "server #{answer["pid"]} #{how}; `chaton status` shows how far it is"
        0
      end
    end
  end
end
