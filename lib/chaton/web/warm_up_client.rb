# frozen_string_literal: true

require "stringio"

module Chaton
  module Web
    # The client that a `warm_up` block gets. Its requests are calls of the Rack application in this process, through
    # all middleware; nothing is sent over a socket.
    class WarmUpClient
      # @return [Integer] requests so far, and those of them that raised or were answered with a 5xx
      attr_reader :requests, :failed
      # @return [Hash{Integer => Integer}] how many responses had a status: one that sends to a login warms little
      attr_reader :statuses

      # @param app [#call] the Rack application
      # @param template [Hash] see {EnvTemplate}
      # @yieldparam requests [Integer] before each request, the number of those before it
      def initialize(app, template, log:, &check)
        @app = app
        @template = template
        @log = log
        @check = check
        @requests = 0
        @failed = 0
        @statuses = Hash.new(0)
      end

      # @param path [String] with its query
      # @param options [Hash] see {#request}
      # @return [Integer, nil] see {#request}
      def get(path, **options) = request("GET", path, **options)

      # @param path [String] with its query
      # @param options [Hash] see {#request}
      # @return [Integer, nil] see {#request}
      def post(path, **options) = request("POST", path, **options)

      # Makes one request.
      #
      # @param path [String] with its query
      # @param headers [Hash{String => String}] such as "Host" or "Accept"
      # @return [Integer, nil] the status of the response; nil when the application raised
      def request(method, path, headers: {}, body: "")
        @check.call(@requests)
        @requests += 1
        env = env(method, path, headers, body)
        status = respond(env)
        @statuses[status] += 1
        refused(method, path, status) if status >= 500
        status
      rescue WarmUp::Over
        raise
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in an app must not end the worker
        @failed += 1
        @log.exception(e, "a warm_up request failed", request: "#{method} #{path}")
        nil
      end

      def inspect = "#<#{self.class.name} requests=#{@requests} failed=#{@failed}>"

      private

      def refused(method, path, status)
        @failed += 1
        @log.warn("a warm_up request was answered with #{status}", request: "#{method} #{path}")
      end

      def respond(env)
        status, headers, body = @app.call(env)
        body.each(&:itself) if body.respond_to?(:each)
        status = Integer(status)
      rescue Exception => e # rubocop:disable Lint/RescueException -- raised again
        error = e
        raise
      ensure
        body.close if body.respond_to?(:close)
        # Rails ends its executor in these.
        finish(env, status, headers, error)
      end

      def finish(env, status, headers, error)
        env["rack.after_reply"].each(&:call)
        env["rack.response_finished"].reverse_each { |callable| callable.call(env, status, headers, error) }
      end

      def env(method, path, headers, body)
        env = @template.merge(request_line(method, path), content(body))
        headers.each do |name, value|
          key = name.upcase.tr("-", "_")
          env[key.start_with?("CONTENT_") ? key : "HTTP_#{key}"] = value
        end
        env
      end

      def request_line(method, path)
        route, query = path.split("?", 2)
        { "REQUEST_METHOD" => method, "SCRIPT_NAME" => +"", "PATH_INFO" => +route, "REQUEST_PATH" => +route,
          "REQUEST_URI" => +path, "QUERY_STRING" => +query.to_s, "SERVER_PROTOCOL" => "HTTP/1.1",
          "HTTP_VERSION" => "HTTP/1.1", "REMOTE_ADDR" => "127.0.0.1", "HTTP_HOST" => "localhost" }
      end

      # The connection cannot be hijacked: there is none.
      def content(body)
        length = body.empty? ? {} : { "CONTENT_LENGTH" => body.bytesize.to_s }
        { "rack.input" => StringIO.new(body.b), "rack.hijack?" => false, "rack.hijack" => nil,
          "rack.after_reply" => [], "rack.response_finished" => [], **length }
      end
    end
  end
end
