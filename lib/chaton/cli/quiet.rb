# frozen_string_literal: true

require_relative "remote"

module Chaton
  class CLI
    # chaton quiet: no new connections, the open ones go on.
    class Quiet < Remote
      # @return [Integer] exit status
      def run
        answer = ask("quiet")
        @out.puts "server #{answer["pid"]} accepts no new connections"
        0
      end
    end
  end
end
