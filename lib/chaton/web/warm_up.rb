# frozen_string_literal: true

require "timeout"
require "chaton/web/warm_up_client"

module Chaton
  module Web
    # Runs the `warm_up` blocks of the configuration in a process that takes no requests yet: in the preloader, for all
    # workers that it will fork, or without one in each process. The requests that they make fill caches and let YJIT
    # compile, so that no real client waits for either, and workers share the result. Failures are logged only.
    class WarmUp
      # The rest of the time to boot is for loading the application.
      BOOT_PART = 3.0

      # Ends the blocks. It is no StandardError, because applications rescue those.
      class Over < Exception; end # rubocop:disable Lint/InheritException

      # @param app [#call] the Rack application
      # @param template [Hash] see {EnvTemplate}
      def initialize(plan, app:, template:, log:)
        @blocks = plan.hooks.fetch(:warm_up, [])
        @timeout_s = (plan.boot_timeout_s / BOOT_PART).round(2)
        @requests_max = plan.web[:warm_up_requests_max]
        @client = WarmUpClient.new(app, template, log: log) { |requests| check(requests) }
        @log = log
      end

      # Returns once the blocks have ended or their time is over.
      def call
        return if @blocks.empty?

        started_s = now_s
        run
        statuses = @client.statuses.sort.map { |status, times| "#{status}: #{times}" }.join(", ")
        @log.info("warmed up", requests: @client.requests, failed: @client.failed, statuses: statuses,
                               ms: ((now_s - started_s) * 1e3).round)
      end

      private

      def run
        Timeout.timeout(@timeout_s, Over, "a third of boot_timeout_s (#{@timeout_s} s) is over") do
          @blocks.each { |block| run_block(block) }
        end
      rescue Over => e
        @log.warn("warm_up ended early and the start goes on without the rest: #{e.message}")
      end

      def run_block(block)
        block.call(@client)
      rescue Over
        raise
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` here must not end the worker
        @log.exception(e, "a warm_up block failed", hook: block.source_location&.join(":"))
      end

      def check(requests)
        raise Over, "more than #{@requests_max} requests in one process" if requests >= @requests_max
      end

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
