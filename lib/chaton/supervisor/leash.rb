# frozen_string_literal: true

require "socket"

module Chaton
  class Supervisor
    # The supervisor's end of the socket pair between it and one worker.
    #
    # Supervisor → worker: `p`, a ping; `R`, JSON and a newline: a sibling died, see {Recovery}; `O` and the same: an
    # order, see {Service::Orders}.
    # Worker → supervisor: `r` (its Rust side saw the ping), `g` (a Ruby thread
    # got the GVL after the ping), `+` (ready), `!` followed by the reason it
    # cannot boot, up to the end. Either side's death is the other's end of file.
    class Leash
      # A reason longer than this is cut.
      REASON_BYTES_MAX = 2048
      # What a worker may leave unread; past it nothing more is sent, and the heartbeat finds out.
      UNSENT_BYTES_MAX = 1 << 20

      # @return [UNIXSocket] this side
      attr_reader :io
      # @return [String, nil] why the worker could not boot
      attr_reader :reason

      # @return [Array(Leash, UNIXSocket)] this side, and the worker's
      def self.pair
        ours, theirs = UNIXSocket.pair
        [new(ours), theirs]
      end

      def initialize(io)
        @io = io
        @reason = nil
        @unsent = +""
      end

      # @return [Boolean] false when the worker does not read; the heartbeat
      #   will find out
      def ping = send("p")

      # @param line [String] JSON without a newline
      # @return [Boolean] whether it is on its way, whole
      def recover(line) = send("R#{line}\n")

      # @param line [String] JSON without a newline
      # @return [Boolean] whether it is on its way, whole
      def order(line) = send("O#{line}\n")

      # @return [Boolean] whether something waits to be sent
      def unsent? = !@unsent.empty? && !closed?

      # Sends on what waits.
      #
      # @return [Boolean] whether all is sent
      def flush
        until @unsent.empty?
          count = @io.write_nonblock(@unsent, exception: false)
          return false if count == :wait_writable

          @unsent = @unsent.byteslice(count..)
        end
        true
      rescue SystemCallError, IOError
        # The other end is closing; it is read as the worker's death.
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

      # @return [Boolean]
      def closed?
        @io.closed?
      end

      # @return [void]
      def close
        @io.close
      end

      private

      # In order: what came before must not be cut in two by what comes after it.
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
        return note(bytes) if @reason

        told, bang, rest = bytes.partition("!")
        events = told.each_char.filter_map { |char| EVENTS[char] }
        note(rest) unless bang.empty?
        events
      end

      def note(text)
        @reason = "#{@reason}#{text.dup.force_encoding(Encoding::UTF_8).scrub("?")}"[0, REASON_BYTES_MAX]
        []
      end

      EVENTS = { "r" => :rust, "g" => :ruby, "+" => :ready }.freeze
      private_constant :EVENTS
    end
  end
end
