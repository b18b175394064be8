# frozen_string_literal: true

require "chaton/errors"
require "chaton/web/sendfile"
require "chaton/web/stream"

module Chaton
  module Web
    # Sends a response that is not just an Integer, a Hash of Strings and an Array of Strings: files, streams, hijacks,
    # other header values.
    class Response
      # Time after which the client of an event stream comes back that could not begin, not all at once.
      RETRY_MS = 2000..4000
      private_constant :RETRY_MS

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
        upgrade
        raw = @headers.delete("rack.hijack") || (@body if @status == 101 && streaming?)
        # Rails wraps its bodies, so that the marker comes as a header.
        return send_events(raw) || send_stream if raw.respond_to?(:event_stream_names)
        # A connection of HTTP/2 carries other requests, too: the callable gets a stream instead of it.
        return @request.http2? ? send_stream(raw) : hijack(raw) if raw

        send_file || send_array || send_events || send_stream
      ensure
        close_body
      end

      private

      def check
        raise no_response unless @headers.respond_to?(:each)

        @headers = plain(@headers)
        # Beside a partial hijack the body is ignored.
        sendable = @headers.key?("rack.hijack") || %i[each call to_path].any? { |name| @body.respond_to?(name) }
        raise no_response unless sendable

        @status = Integer(@status)
      rescue TypeError, ArgumentError
        raise ResponseError, "the status #{@status.inspect[0, 50]} is not a number"
      end

      def no_response
        ResponseError.new("the application answered #{[@status, @headers, @body].inspect[0, 200]}; " \
                          "a Rack application answers [status, headers, body]")
      end

      # Rack 3.1: the application has chosen one of the protocols that the client offers.
      def upgrade
        protocol = @headers.delete("rack.protocol") or return
        unless @env["rack.protocol"]&.include?(protocol)
          raise ResponseError, "the client has not offered the protocol #{protocol.inspect[0, 50]} (rack.protocol)"
        end

        @headers.delete_if { |name, _| name.match?(/\A(?:connection|upgrade)\z/i) }
        @headers.update("upgrade" => protocol, "connection" => "upgrade")
        @status = 101
      end

      # A body that also has `each` is not a streaming one.
      def streaming? = @body.respond_to?(:call) && !@body.respond_to?(:each)

      def plain(headers)
        headers.each_with_object({}) do |(name, value), copy|
          copy[name.to_s] = plain_value(name, value)
        end
      end

      def plain_value(name, value)
        return value if value.is_a?(String) || name.to_s == "rack.hijack"

        value.is_a?(Array) ? value.map(&:to_s) : value.to_s
      end

      # The hub holds the connection from now on.
      def send_events(body = @body)
        return unless body.respond_to?(:event_stream_names)
        return if bodyless?

        @headers.delete_if { |name, _| name.casecmp?("content-length") }
        Live.client.stream(@request, @status, @headers, body.event_stream_names, body.event_stream_options) or
          raise ResponseError, "the headers cannot be sent: #{@headers.inspect[0, 200]}"
      rescue StoreUnavailable, StoreFull, StoreBusy => e
        Live.note_away(e, @log)
        # Browsers give up after an error, and come back after a stream that has ended.
        @request.finish(@status, @headers, ["retry: #{rand(RETRY_MS)}\n\n"])
      end

      # The kernel sends a file whose path is known.
      def send_file
        path = @body.to_path if @body.respond_to?(:to_path)
        # It is nil for a pipe, and may be a Pathname.
        path && @request.finish_file(@status, @headers, path.to_s, (@body.fileno if @body.is_a?(Sendfile::FileBody)))
      end

      def send_array
        parts = @body.to_ary if @body.respond_to?(:to_ary)
        # In Rails it returns nil, or an Enumerator, for what must be read by `each`.
        return false unless parts.is_a?(Array)

        # Rack 3: to_ary closes the body.
        @closed = true if Rack.release >= "3"
        @request.finish(@status, @headers, Array.new(parts)) or
          raise ResponseError, "the body may contain only Strings, but holds: #{parts.map(&:class).uniq.join(", ")}"
      end

      def send_stream(callable = (@body if streaming?))
        @request.begin(@status, @headers) or
          raise ResponseError, "the headers cannot be sent: #{@headers.inspect[0, 200]}"
        return @request.end(true) if bodyless?

        callable ? call_body(callable) : write_each
      end

      # What has no end, such as a stream of events, must not be read for these.
      def bodyless? = @env["REQUEST_METHOD"] == "HEAD" || @status < 200 || @status == 204 || @status == 304

      def write_each
        @body.each { |chunk| @request.write(chunk) }
        complete = true
      ensure
        @request.end(complete ? true : false)
      end

      # The body may close the stream after it returned, from another thread.
      def call_body(callable)
        stream = Stream.new(@request.detach, @env["rack.input"])
        callable.call(stream)
        returned = true
      ensure
        stream.close(complete: false) unless returned
      end

      def hijack(callable)
        head = @request.hijack_head(@status, @headers)
        io = @request.call
        begin
          io.write(head)
          # RFC 9110 section 9.3.2: HEAD has no body.
          return io.close if bodyless? && @status >= 200

          callable.call(io)
        rescue EOFError, Errno::ECONNRESET, Errno::EPIPE => e
          io.close
          # What reads frames or lines fails so when its client leaves, which every client does.
          @log.info("an upgraded connection ended", error: e.class, reason: e.message)
          raise ClientGone, "the client closed the upgraded connection"
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
