# frozen_string_literal: true

require "chaton/errors"
require "chaton/native"
require "chaton/telemetry/traces"
require "chaton/web/request"
require "chaton/web/response"
require "chaton/web/streamed_body"

module Chaton
  module Web
    # Runs one request. Whatever the application raises becomes a 500 and a log line.
    class Handler
      # The response after an error.
      ERROR_BODY = ["Internal Server Error\n"].freeze
      ERROR_HEADERS = { "Content-Type" => "text/plain; charset=utf-8" }.freeze
      private_constant :ERROR_BODY, :ERROR_HEADERS

      # @param error_handler [#call, nil] `(error, env, status)` → Rack response
      # @param early_hints [Boolean] whether env has `rack.early_hints`
      def initialize(app, log:, error_handler: nil, early_hints: false)
        @app = app
        @log = log
        @error_handler = error_handler
        @early_hints = early_hints
      end

      def call(request)
        env = request.env
        env["rack.early_hints"] = EarlyHints.new(request) if @early_hints
        status, headers, body = @app.call(env)
        request.finish(status, headers, body) || Response.new(request, env, status, headers, body, @log).deliver
      rescue ClientGone => e
        failed = e
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in an app must not end the server
        failed = e
        status, headers = answer_error(request, env, e) || [status, headers]
      ensure
        finish_up(request, env, status, headers, failed) unless request.done?
      end

      private

      # @return [Array(Integer, Hash), nil] status and headers as `rack.response_finished` gets them; nil when the
      #   application's were sent
      def answer_error(request, env, error)
        return answer_cut(request, env, error) if error.is_a?(RequestBodyError)

        Telemetry::Traces.failed(error)
        @log.exception(error, "the application failed", request: name_of(request, env))
        # The head of a streamed body has been sent: the connection is closed.
        return unless request.open?
        return answer_500(request) unless @error_handler

        status, headers, body = custom_error(error, env)
        request.finish(status, headers, body) || Response.new(request, env, status, headers, body, @log).deliver
        [status, headers]
      rescue Exception => e # rubocop:disable Lint/RescueException
        @log.exception(e, "answering an error failed")
        answer_500(request) if request.open?
      end

      def answer_500(request)
        request.finish(500, ERROR_HEADERS, ERROR_BODY)
        [500, {}]
      end

      # No fault of the application.
      def answer_cut(request, env, error)
        @log.info("a request was given up: #{error.message}", request: name_of(request, env))
        return unless request.open?

        request.finish(400, ERROR_HEADERS, ["#{error.message}\n"])
        [400, {}]
      end

      def custom_error(error, env)
        arity = @error_handler.arity
        @error_handler.call(*[error, env, 500].first(arity.negative? ? 3 : arity))
      end

      def answer_killed(request, env)
        @log.error("the thread was killed while it ran a request; a new one is started",
                   request: name_of(request, env))
        answer_500(request)
      end

      def name_of(request, env)
        request.open? ? request.describe : "#{env["REQUEST_METHOD"]} #{env["REQUEST_PATH"]}"
      end

      def finish_up(request, env, status, headers, error)
        # Still open only if the thread was killed.
        status, headers = answer_killed(request, env) if request.open?
        after_reply(env, status, headers, error) if request.after_reply?
      ensure
        # Not left to the garbage collector, because many uploads would use up the descriptors before it runs.
        request.input&.close
      end

      # Both lists hold callables to call after the response.
      def after_reply(env, status, headers, error)
        Array(env["rack.after_reply"]).each { |callable| guarded { callable.call } }
        Array(env["rack.response_finished"]).reverse_each do |callable|
          guarded { callable.call(env, status, headers, error) }
        end
      end

      def guarded
        yield
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` here must not end the server either
        @log.exception(e, "a callback after the response failed")
      end
    end
  end
end
