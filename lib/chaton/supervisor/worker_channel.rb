# frozen_string_literal: true

require "socket"

module Chaton
  class Supervisor
    # The supervisor's end of the socket pair between it and one worker.
    #
    # Supervisor → worker: `p`, a ping; `R`, JSON and a newline: another worker died, see {JobRecovery}; `O`, JSON and a
    # newline: a command, see {Workload::WorkerCommands}.
    #
    # Worker → supervisor: `r` (its Rust side got the ping), `g` (a Ruby thread got the GVL after the ping), `+`
    # (ready), `!` and, up to the end of file, the reason why it cannot boot. The death of one side is the other's end
    # of file.
    class WorkerChannel
      # A longer reason is cut.
      REASON_BYTES_MAX = 2048
      # Bytes that a worker may leave unread. Above it nothing more is sent, and the heartbeat detects the worker.
      UNSENT_BYTES_MAX = 1 << 20

      EVENTS = { "r" => :rust, "g" => :ruby, "+" => :ready }.freeze
      private_constant :EVENTS

      attr_reader :io
      # @return [String, nil] why the worker could not boot
      attr_reader :reason

      # @return [Array(WorkerChannel, UNIXSocket)] this side, and the worker's
      def self.pair
        ours, theirs = UNIXSocket.pair
        [new(ours), theirs]
      end

      # @param io [UNIXSocket, nil] nil: it is closed
      def initialize(io)
        @io = io
        @reason = nil
        @unsent = +""
      end

      # @return [Boolean] false when the worker does not read
      def ping = send("p")

      # @param line [String] JSON without a newline
      # @return [Boolean] whether it was accepted for sending
      def recover(line) = send("R#{line}\n")

      # @param line [String] JSON without a newline
      # @return [Boolean] whether it was accepted for sending
      def command(line) = send("O#{line}\n")

      # @return [Boolean] whether bytes wait to be sent
      def unsent? = !@unsent.empty? && !closed?

      # Sends the bytes that wait.
      def flush
        until @unsent.empty?
          count = @io.write_nonblock(@unsent, exception: false)
          return false if count == :wait_writable

          @unsent = @unsent.byteslice(count..)
        end
        true
      rescue SystemCallError, IOError
        # The other end is closing; reading it reports the worker's death.
        @unsent = +""
        false
      end

      # Reads what has arrived.
      #
      # @return [Array<Symbol>] of :rust, :ruby, :ready, :gone, in order
      def read
        bytes = @io.read_nonblock(4096, exception: false)
        return [] if bytes == :wait_readable
        return gone if bytes.nil?

        events(bytes)
      rescue SystemCallError, IOError
        gone
      end

      def closed? = @io.nil? || @io.closed?

      def close = @io&.close

      private

      # Bytes go out in order: a message must not be sent into the middle of an earlier one.
      def send(bytes)
        return false if @unsent.bytesize + bytes.bytesize > UNSENT_BYTES_MAX

        @unsent << bytes
        flush
      end

      def gone
        close
        [:gone]
      end

      def events(bytes)
        return add_to_reason(bytes) if @reason

        chars, bang, rest = bytes.partition("!")
        events = chars.each_char.filter_map { |char| EVENTS[char] }
        add_to_reason(rest) unless bang.empty?
        events
      end

      def add_to_reason(text)
        @reason = "#{@reason}#{text.dup.force_encoding(Encoding::UTF_8).scrub("?")}"[0, REASON_BYTES_MAX]
        []
      end
    end
  end
end
