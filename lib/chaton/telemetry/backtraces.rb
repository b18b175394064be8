# frozen_string_literal: true

module Chaton
  module Telemetry
    # What every thread of this process is doing.
    module Backtraces
      # Deeper frames do not tell what a thread waits for.
      LINES_MAX = 30
      # Threads that are read at once.
      THREADS_MAX = 1000

      module_function

      # Logs it.
      def write(log, why)
        Thread.list.each do |thread|
          log.warn("thread at #{why}", thread: name(thread), status: thread.status.to_s,
                                       backtrace: lines(thread).join(" < "))
        end
      end

      def read
        Thread.list.first(THREADS_MAX).map do |thread|
          { thread: name(thread).to_s, tid: thread.native_thread_id, status: thread.status.to_s,
            backtrace: lines(thread) }
        end
      end

      def name(thread) = thread.name || (thread == Thread.main ? "main" : thread.object_id)

      def lines(thread) = (thread.backtrace || []).first(LINES_MAX)
    end
  end
end
