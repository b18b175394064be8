# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # Looks at the files of certificates as workers do, and reads renewed ones: workers that are forked later begin with
    # them if the files cannot be used then. A source of the event loop.
    class CertificateWatch
      # @return [Float, nil] (monotonic s)
      attr_reader :due_at

      def initialize(listeners, forkers, every_s:)
        @listeners = listeners
        @forkers = forkers
        @every_s = every_s
        @due_at = EventLoop.now_s + every_s if listeners.tls?
      end

      def ios = []

      def tick(now_s)
        return unless @due_at && now_s >= @due_at

        @due_at = now_s + @every_s
        reload if @listeners.certificates_changed?
      end

      # Reads the files, and has the preloaders read them and open their output files again.
      def reload
        @listeners.reload_certificates
        @forkers.reload
      end
    end
  end
end
