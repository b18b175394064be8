# frozen_string_literal: true

module Chaton
  class Supervisor
    # What `chaton trace` wants workers to do, as it came over the control socket:
    #
    #   {"command":"trace","action":"start","worker":null,"reply_to":"/…/s","every":64}
    #
    # Workers answer by themselves, on the Unix socket `reply_to` on which the client listens; so the main process
    # neither waits for a worker nor carries what it has to tell. Whether a setting makes sense is the tracer's
    # business, and its answer.
    class TraceOrder
      # What there is to do.
      ACTIONS = %w[start stop status report].freeze
      # Settings of a tracer that may be given, instead of those of the configuration.
      SETTINGS = %w[every duty window_ms].freeze
      # The longest path of a Unix socket: 108 bytes with the zero at its end (unix(7)).
      PATH_BYTES_MAX = 107

      # @param request [Hash{String=>Object}]
      def initialize(request)
        @request = request
      end

      # @return [String, nil] why it cannot be passed on
      def problem
        return "trace needs an action, one of #{ACTIONS.join(", ")}" unless ACTIONS.include?(@request["action"])
        return "worker must be a number, or null for all" unless worker.nil? || worker.is_a?(Integer)

        path = @request["reply_to"]
        return if path.is_a?(String) && path.start_with?("/") && path.bytesize <= PATH_BYTES_MAX

        "reply_to must be the absolute path of a Unix socket, of #{PATH_BYTES_MAX} bytes at most"
      end

      # @return [String] why no worker was told
      def nobody
        return "no worker is ready; `chaton status` shows what they do" unless worker

        "there is no worker #{worker} that is ready; `chaton status` lists them"
      end

      # @param index [Integer] a worker's number
      # @return [Boolean] whether it is meant
      def for?(index) = worker.nil? || worker == index

      # @return [Hash{String=>Object}] for a worker
      def to_h
        settings = @request.slice(*SETTINGS).select { |_, value| value.is_a?(Numeric) }
        { "do" => "trace", "action" => @request["action"], "reply_to" => @request["reply_to"], **settings }
      end

      private

      def worker = @request["worker"]
    end
  end
end
