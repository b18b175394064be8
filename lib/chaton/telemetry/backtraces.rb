# frozen_string_literal: true

module Chaton
  module Telemetry
    # Logs what every thread of this process is doing.
    module Backtraces
      # Deeper frames do not tell what a thread waits for.
      LINES_MAX = 30

      module_function

      def write(log, why)
        Thread.list.each do |thread|
          lines = (thread.backtrace || []).first(LINES_MAX)
          log.warn("thread at #{why}", thread: thread.name || thread.object_id, status: thread.status.to_s,
                                       backtrace: lines.join(" < "))
        end
      end
    end
  end
end
