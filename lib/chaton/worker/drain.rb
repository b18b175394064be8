# frozen_string_literal: true

require "io/wait"

module Chaton
  class Worker
    # Stops a workload on a thread of its own, so that the main thread keeps handling signals: a second INT must not
    # wait for the first.
    class Drain
      # @return [IO] readable once the workload has stopped
      attr_reader :io

      # @param deadline_s [Numeric] seconds that running work may take
      def initialize(workload, deadline_s)
        @io, done = IO.pipe
        @thread = Thread.new do
          Thread.current.name = "chaton-drain"
          Thread.current.report_on_exception = false
          workload.stop(deadline_s)
        ensure
          done.close
        end
      end

      # @return [Boolean] whether the workload has stopped
      def over? = !@io.wait_readable(0).nil?

      # Waits for the end.
      #
      # @return [Boolean] true when all work was finished, false when some had to be released
      # @raise [Exception] what stopping raised
      def complete? = @thread.value
    end
  end
end
