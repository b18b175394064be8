# frozen_string_literal: true

require "json"

module Chaton
  class Supervisor
    # One client of the control socket: a line of JSON in, a line of JSON out,
    # within a bound of bytes and of time.
    class Conversation
      REQUEST_BYTES_MAX = 4096
      LIFETIME_S = 5.0

      # @return [UNIXSocket]
      attr_reader :io
      # @return [Float] when it is ended (monotonic s)
      attr_reader :due_at

      # @param io [UNIXSocket]
      # @param now_s [Float]
      def initialize(io, now_s)
        @io = io
        @due_at = now_s + LIFETIME_S
        @request = +""
        @reply = nil
      end

      # @return [Boolean] whether it still waits for the request
      def reading?
        !@reply && !closed?
      end

      # @return [Boolean] whether a reply waits to be sent
      def writing?
        !@reply.nil? && !closed?
      end

      # @return [Boolean]
      def closed?
        @io.closed?
      end

      # Reads on; once the request is whole it is answered.
      #
      # @yieldparam request [Hash] with "command"
      # @yieldreturn [Hash] the reply
      # @return [void]
      def read(&answer)
        bytes = @io.read_nonblock(REQUEST_BYTES_MAX, exception: false)
        return if bytes == :wait_readable
        return close if bytes.nil?

        @request << bytes
        if @request.bytesize > REQUEST_BYTES_MAX
          reply(refusal("the request is longer than #{REQUEST_BYTES_MAX} bytes"))
        elsif @request.include?("\n")
          reply(respond(&answer))
        end
      rescue SystemCallError
        close
      end

      # Sends on, and closes after the last byte.
      #
      # @return [void]
      def write
        sent = @io.write_nonblock(@reply, exception: false)
        return if sent == :wait_writable

        @reply = @reply.byteslice(sent..)
        close if @reply.empty?
      rescue SystemCallError
        close
      end

      # @return [void]
      def close
        @io.close
      end

      private

      def respond
        request = JSON.parse(@request.lines.first)
        return refusal("the request is not a JSON object with a \"command\"") unless request.is_a?(Hash)

        yield(request)
      rescue JSON::ParserError
        refusal("the request is not JSON; send one line such as {\"command\":\"status\"}")
      end

      def refusal(reason)
        { ok: false, error: reason }
      end

      def reply(hash)
        @reply = "#{JSON.generate(hash)}\n"
        write
      end
    end
  end
end
