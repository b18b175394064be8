# frozen_string_literal: true

module Chaton
  class Supervisor
    # Keeps workers from taking new work: signals all that are ready, and each that becomes ready later in place of one
    # that died or was replaced.
    class QuietMode
      def initialize(worker_set)
        @worker_set = worker_set
        @signals = []
        @sent = {}.compare_by_identity
      end

      # @param signal [String] which kinds of work are no longer taken: see {Worker}
      def begin(signal)
        @signals |= [signal]
        signal_new_workers
      end

      # Workers that become ready from now on take work. Those that are quiet stay so.
      def end
        @signals = []
      end

      # Sends the signals to every ready worker that has not got them.
      def signal_new_workers
        @sent.reject! { |child, _| child.dead? }
        @worker_set.children.select(&:ready?).each do |child|
          (@signals - @sent.fetch(child, [])).each { |signal| child.signal(signal) }
          @sent[child] = @sent.fetch(child, []) | @signals
        end
      end
    end
  end
end
