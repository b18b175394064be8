# frozen_string_literal: true

require_relative "../../control"
require_relative "../profile/answer_socket"

module Chaton
  class CLI
    class Top < ServerCommand
      # Asks the server again and again on a thread of its own: keys are answered while a store is away.
      class Poll
        # What the server said last, or why it said nothing.
        Reply = Struct.new(:value, :error, keyword_init: true)

        # @param interval_s [Float] between two questions
        # @param ask [#call] returns the answer; a {Chaton::Error} is shown
        # @param arrived [#call] called on the thread after each
        def initialize(interval_s, ask:, arrived:)
          @interval_s = interval_s
          @ask = ask
          @arrived = arrived
          @lock = Mutex.new
          @wanted = ConditionVariable.new
        end

        attr_reader :reply

        def start
          @thread = Thread.new { run }
          @thread.report_on_exception = false
          self
        end

        # Asks at once.
        def hurry
          @lock.synchronize do
            @hurry = true
            @wanted.signal
          end
        end

        def stop = @thread&.kill

        private

        def run
          loop do
            wait
            @reply = answer
            @arrived.call
          end
        end

        def answer
          Reply.new(value: @ask.call)
        rescue Chaton::Error => e
          Reply.new(error: e.message)
        end

        def wait
          @lock.synchronize do
            @wanted.wait(@lock, @interval_s) unless @hurry
            @hurry = false
          end
        end
      end

      # What one worker runs now. The worker answers itself, because its supervisor does not know.
      class Units
        # Time for the answer; the thread that gives it needs the GVL.
        ANSWER_S = 2.0

        def initialize(control_socket)
          @control_socket = control_socket
        end

        # @return [Array<Hash{String=>Object}>] oldest first
        # @raise [ControlError] when it does not answer
        def of(worker)
          answer = Profile::AnswerSocket.open(beside: @control_socket) do |socket|
            client = Control::Client.new(@control_socket)
            client.call("ask", action: "running", worker: worker, reply_to: socket.path)
            socket.collect(1, ANSWER_S).first
          end
          raise ControlError, "worker #{worker} did not answer within #{ANSWER_S} s" unless answer&.ok?

          answer.header.fetch("running").sort_by { |unit| -unit["age_ms"] }
        end
      end
    end
  end
end
