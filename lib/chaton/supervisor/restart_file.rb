# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # Restarts the server when a file was touched: `bin/rails restart` touches tmp/restart.txt. A source of the event
    # loop.
    class RestartFile
      # Pause between two looks at the file.
      CHECK_EVERY_S = 1.0

      attr_reader :due_at

      # Create it before the application is loaded: code that was changed later must be loaded again.
      def initialize(path, log:)
        @path = path
        @log = log
        @touched_at = touched_at
      end

      # Begins to look.
      #
      # @yieldreturn [String, nil] why the server cannot restart now; it is asked again
      def open(&restart)
        @restart = restart
        @due_at = EventLoop.now_s + CHECK_EVERY_S if @path
      end

      def ios = []

      def tick(now_s)
        return unless @due_at && now_s >= @due_at

        @due_at = now_s + CHECK_EVERY_S
        touched_at = touched_at()
        return if touched_at.nil? || touched_at == @touched_at || @restart.call

        @log.info("restarting, because a file was touched", path: @path)
        @touched_at = touched_at
      end

      private

      def touched_at
        File.stat(@path).mtime if @path
      rescue SystemCallError
        nil
      end
    end
  end
end
