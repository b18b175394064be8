# frozen_string_literal: true

require_relative "server_command"

module Chaton
  class CLI
    # chaton quiet: the server takes no new connections, jobs and records, and finishes those it has.
    class Quiet < ServerCommand
      def run
        answer = ask("quiet")
        @out.puts "server #{answer["pid"]} takes no new connections and no more work"
        0
      end
    end
  end
end
