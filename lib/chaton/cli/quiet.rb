# frozen_string_literal: true

require_relative "remote"

module Chaton
  class CLI
    # chaton quiet: no new connections, no more jobs and records; what there is goes on.
    class Quiet < Remote
      def run
        answer = ask("quiet")
        @out.puts "server #{answer["pid"]} takes no new connections and no more work"
        0
      end
    end
  end
end
