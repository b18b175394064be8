# frozen_string_literal: true

require_relative "server_command"

module Chaton
  class CLI
    # chaton stop: a running server finishes what it runs and leaves.
    class Stop < ServerCommand
      def run
        answer = ask("stop")
        @out.puts "server #{answer["pid"]} finishes what it runs and leaves"
        0
      end
    end
  end
end
