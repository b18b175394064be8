# frozen_string_literal: true

require "json"

module Chaton
  class Supervisor
    # One client of the control socket: it sends a line of JSON and gets a line of JSON, with a limit on bytes and time.
    class ControlConnection
      REQUEST_BYTES_MAX = 4096
      LIFETIME_S = 5.0

      attr_reader :io
      # @return [Float] when it is closed (monotonic s)
      attr_reader :due_at

      def initialize(io, now_s)
        @io = io
        @due_at = now_s + LIFETIME_S
        @request = +""
        @reply = nil
      end

      def reading? = !@reply && !closed?

      def writing? = !@reply.nil? && !closed?

      def closed? = @io.closed?

      def close = @io.close

      # Reads what has arrived, and answers once the request is complete.
      #
      # @yieldparam request [Hash] with "command"
      # @yieldreturn [Hash] the reply
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

      # Sends what it can, and closes after the last byte.
      def write
        sent = @io.write_nonblock(@reply, exception: false)
        return if sent == :wait_writable

        @reply = @reply.byteslice(sent..)
        close if @reply.empty?
      rescue SystemCallError
        close
      end

      private

      def respond
        request = JSON.parse(@request.lines.first)
        return refusal("the request is not a JSON object with a \"command\"") unless request.is_a?(Hash)

        yield(request)
      rescue JSON::ParserError
        refusal("the request is not JSON; send one line such as {\"command\":\"status\"}")
      end

      def refusal(reason) = { ok: false, error: reason }

      def reply(hash)
        @reply = "#{JSON.generate(hash)}\n"
        write
      end
    end
  end
end
