# frozen_string_literal: true

require_relative "../../control"
require_relative "../profile/answer_socket"

module Chaton
  class CLI
    class Top < ServerCommand
      # What one worker runs now. The worker answers itself, because its supervisor does not know.
      class Units
        # Time for the answer; the thread that gives it needs the GVL.
        ANSWER_S = 2.0

        # @param control_socket [String] path
        def initialize(control_socket)
          @control_socket = control_socket
        end

        # @param worker [Integer] its number
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
