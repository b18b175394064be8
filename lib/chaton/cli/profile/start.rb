# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Profile
      # chaton profile start
      class Start < Command
        def self.own_options = %i[worker every duty window_ms]

        def run
          settings = %i[every duty window_ms].to_h { |name| [name, value(name)] }.compact
          result = ask_workers("start", **settings)
          warn_of(result)
          result.answers.each { |answer| @out.puts line(answer) }
          0
        end

        private

        def line(answer)
          status = answer.status
          began = status["already"] ? "was profiling already" : "profiles"
          format("worker %<worker>s (pid %<pid>s) %<began>s: 1 of %<every>s objects, %<share>s %% of the time, in " \
                 "windows of %<window_ms>s ms",
                 began: began, worker: answer.worker, pid: answer.pid, every: status["every"],
                 share: (status["duty"].to_f * 100).round(1), window_ms: status["window_ms"])
        end
      end
    end
  end
end
