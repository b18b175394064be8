# frozen_string_literal: true

require "chaton/errors"
require "chaton/web/stream"

module Chaton
  module Web
    # Sends a response that is not just an Integer, a Hash of Strings and an Array of Strings: files, streams, hijacks,
    # other header values.
    class Response
      # @param request [Native::Request]
      # @param env [Hash]
      # @param status [#to_i]
      # @param headers [#each]
      # @param body [#each, #call, #to_path, #to_ary]
      # @param log [Telemetry::Log]
      def initialize(request, env, status, headers, body, log)
        @request = request
        @env = env
        @status = status
        @headers = headers
        @body = body
        @log = log
      end

      # Sends it. `body.close` is called once in any case.
      #
      # @raise [ResponseError] when it is not a Rack response
      # @raise [ClientGone] when the client disconnects before the end
      def deliver
        # After a full hijack the response is ignored.
        return if @request.hijacked?

        check
        partial_hijack = @headers.delete("rack.hijack")
        return hijack(partial_hijack) if partial_hijack

        send_file || send_array || send_stream
      ensure
        close_body
      end

      private

      def check
        unless @headers.respond_to?(:each) && %i[each call to_path].any? { |name| @body.respond_to?(name) }
          raise ResponseError, "the application answered #{[@status, @headers, @body].inspect[0, 200]}; " \
                               "a Rack application answers [status, headers, body]"
        end
        @status = Integer(@status)
        @headers = plain(@headers)
      rescue TypeError, ArgumentError
        raise ResponseError, "the status #{@status.inspect[0, 50]} is not a number"
      end

      def plain(headers)
        headers.each_with_object({}) do |(name, value), copy|
          copy[name.to_s] = plain_value(name, value)
        end
      end

      def plain_value(name, value)
        return value if value.is_a?(String) || name.to_s == "rack.hijack"

        value.is_a?(Array) ? value.map(&:to_s) : value.to_s
      end

      # The kernel sends a file whose path is known.
      def send_file
        @body.respond_to?(:to_path) && @request.finish_file(@status, @headers, @body.to_path)
      end

      def send_array
        # In Rails 6.1 to_ary returns nil while streaming.
        parts = @body.respond_to?(:to_ary) ? @body.to_ary : nil
        return false unless parts

        # Rack 3: to_ary closes the body.
        @closed = true if Rack.release >= "3"
        @request.finish(@status, @headers, Array.new(parts)) or
          raise ResponseError, "the body may contain only Strings, but holds: #{parts.map(&:class).uniq.join(", ")}"
      end

      def send_stream
        @request.begin(@status, @headers) or
          raise ResponseError, "the headers cannot be sent: #{@headers.inspect[0, 200]}"
        return @request.end(true) if @env["REQUEST_METHOD"] == "HEAD"

        @body.respond_to?(:each) ? write_each : call_body
      end

      def write_each
        @body.each { |chunk| @request.write(chunk) }
        complete = true
      ensure
        @request.end(complete ? true : false)
      end

      # The body may close the stream after it returned, from another thread.
      def call_body
        stream = Stream.new(@request.detach, @env["rack.input"])
        @body.call(stream)
        returned = true
      ensure
        stream.close(complete: false) unless returned
      end

      def hijack(callable)
        head = @request.hijack_head(@status, @headers)
        io = @request.call
        begin
          io.write(head)
          callable.call(io)
        rescue Exception # rubocop:disable Lint/RescueException -- in any case the client must not wait for ever
          io.close
          raise
        end
      end

      def close_body
        return if @closed || !@body.respond_to?(:close)

        @closed = true
        @body.close
      rescue StandardError => e
        @log.exception(e, "closing the response body failed")
      end
    end
  end
end
