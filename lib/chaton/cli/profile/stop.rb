# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Profile
      # chaton profile stop
      class Stop < Command
        def run
          result = ask_workers("stop")
          warn_of(result)
          result.answers.each do |answer|
            did = answer.status["already"] ? "did not profile" : "has stopped; `chaton profile report` has what it saw"
            @out.puts "worker #{answer.worker} (pid #{answer.pid}) #{did}"
          end
          0
        end
      end
    end
  end
end
