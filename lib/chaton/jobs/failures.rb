# frozen_string_literal: true

require "json"
require_relative "../native"
require_relative "clock"
require_relative "error_report"
require_relative "shutdown"
require_relative "../rails/errors"

module Chaton
  module Jobs
    # Decides what happens to a failed job, by Sidekiq's rules, and calls the handlers.
    class Failures
      # Retries of a job with `retry: true`.
      RETRIES_MAX = 25
      # A job is rescheduled by this time when its failure could not be handled, or it could not be pushed.
      AGAIN_S = 15.0
      # What Rails.error is told about where an error comes from.
      SOURCE = "job.chaton"
      # Seconds between two lines of the log about jobs of an unknown class.
      UNKNOWN_LOG_S = 60
      # Unknown classes that are remembered for it; with more, lines may come more often.
      UNKNOWN_MAX = 1_000
      # What `retry_in` may return instead of a time.
      VERDICTS = %i[kill discard].freeze

      # @param format [Integer] 6, 7 or 8
      def initialize(log:, setup:, retries_max: nil, format: Clock::FORMAT)
        @log = log
        @setup = setup
        @retries_max = retries_max
        @format = format
        @unknown_at = {}
        @lock = Mutex.new
      end

      # Gives a failed job its outcome.
      #
      # @param instance [Object, nil] the job's object, if it was made
      # @param seconds [Float] how long it ran
      def handle(job, error, instance, seconds)
        return job.requeue if Shutdown.behind?(error)
        return job.ack if SidekiqGem.handled?(error)

        item = JSON.parse(job.payload, max_nesting: false)
        report(job, item, error, seconds)
        hooks = hooks_of(item, instance)
        retries = item.fetch("retry") { hooks&.get_sidekiq_options&.fetch("retry", nil) }
        return give_up(job, item, error) unless retries

        item["retry"] = retries
        try_again(job, item, error, hooks)
      end

      # Puts a job back whose class this release does not have, uncounted, also with `retry: false`: in a rolling
      # deploy, or after one was taken back, another release has it. After a day such a job is dead.
      def handle_unknown(job, error)
        return warn_of_unknown(job, error) if job.put_back

        item = JSON.parse(job.payload, max_nesting: false)
        report(job, item, error, 0.0)
        write_error(item, error, job.queue)
        make_dead(job, item, error, hooks_of(item, nil))
      end

      private

      def warn_of_unknown(job, error)
        name = error.name.to_s
        now = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
        @lock.synchronize do
          last = @unknown_at[name]
          return if last && now - last < UNKNOWN_LOG_S

          @unknown_at.clear if @unknown_at.size >= UNKNOWN_MAX
          @unknown_at[name] = now
        end
        @log.warn("a job of a class that is not known here is put back, for a day at most: a release that has the " \
                  "class runs it; if there is none, load its file (jobs { load \"app/jobs\" }), or delete its jobs",
                  class: name, jid: job.jid, queue: job.queue)
      end

      def try_again(job, item, error, hooks)
        write_error(item, error, job.queue)
        verdict, at = verdict_of(item, error, hooks)
        case verdict
        when :retry then job.retry(at, JSON.generate(item, max_nesting: false))
        when :discard then discard(job, item, error)
        else make_dead(job, item, error, hooks)
        end
      end

      # Writes the error into the document.
      def write_error(item, error, queue)
        item["queue"] = item["retry_queue"] || (queue.empty? ? item["queue"] : queue)
        item["error_message"] = ErrorReport.message(error)
        item["error_class"] = error.class.name
        if item["retry_count"]
          item["retried_at"] = Clock.stamp(@format)
          item["retry_count"] += 1
        else
          item["failed_at"] = Clock.stamp(@format)
          item["retry_count"] = 0
        end
        item["chaton"].delete("unknown_since") if item["chaton"].is_a?(Hash)
        lines = ErrorReport.backtrace(error, item["backtrace"])
        item["error_backtrace"] = lines if lines
      end

      # @return [Array(Symbol, Float)] :retry and its time, :discard or :kill
      def verdict_of(item, error, hooks)
        count = item["retry_count"]
        return [:kill] if exhausted?(item, count)

        wanted = retry_in(hooks&.sidekiq_retry_in_block, count, error, item)
        return [wanted] if VERDICTS.include?(wanted)

        now = Clock.now_s
        seconds = wanted.respond_to?(:to_i) ? wanted.to_i : 0
        return [:retry, now + Native.retry_delay(count, rand)] unless seconds.positive?

        # As in Sidekiq, jitter keeps jobs that failed together from returning together.
        [:retry, now + seconds + (rand * 10 * (count + 1)).floor]
      end

      # `retry_for` replaces the number of retries, as since Sidekiq 8.1.
      def exhausted?(item, count)
        if (seconds = item["retry_for"])
          first = Clock.seconds(item["failed_at"]) || Clock.now_s
          return Clock.now_s > first + seconds.to_f
        end

        limit = item["retry"]
        count >= (limit.is_a?(Integer) ? limit : @retries_max || SidekiqGem.retries_max || RETRIES_MAX)
      end

      def retry_in(block, count, error, item)
        return unless block

        guarded("retry_in of #{item["class"]} failed; the default delay is used", item) do
          arity = block.arity
          block.call(*[count, error, item].first(arity.negative? || !block.lambda? ? 3 : arity))
        end
      end

      # As with Sidekiq, a job with `retry: false` does not go to the dead set.
      def give_up(job, item, error)
        call_death_handlers(item, error)
        job.discard
      end

      def discard(job, item, error)
        item["discarded_at"] = Clock.stamp(@format)
        call_death_handlers(item, error)
        job.ack
      end

      def make_dead(job, item, error, hooks)
        block = hooks&.sidekiq_retries_exhausted_block
        kept = JSON.generate(item, max_nesting: false)
        guarded("retries_exhausted of #{item["class"]} failed", item) { block.call(item, error) } if block
        # The block may have changed the job, even into something that JSON cannot hold.
        guarded("the job cannot be kept as it is now", item) { kept = JSON.generate(item, max_nesting: false) } if block
        call_death_handlers(item, error)
        item["dead"] == false ? job.discard : job.dead(kept)
      end

      def call_death_handlers(item, error)
        (@setup.death_handlers + SidekiqGem.death_handlers).each do |handler|
          guarded("a death handler failed", item) { handler.call(item, error) }
        end
      end

      def guarded(message, item)
        yield
      rescue Exception => e # rubocop:disable Lint/RescueException -- the job gets its outcome all the same
        @log.exception(e, message, jid: item["jid"])
        call_error_handlers(e, { context: message, job: item })
        nil
      end

      # The class whose blocks count: the wrapped class of an ActiveJob if it has any.
      def hooks_of(item, instance)
        [wrapped(item), instance&.class].find { |klass| klass.respond_to?(:sidekiq_retry_in_block) }
      end

      # The error may be that this class cannot be loaded.
      def wrapped(item)
        item["wrapped"] && JobClass.constant(item["wrapped"])
      rescue StandardError, ScriptError
        nil
      end

      def report(job, item, error, seconds)
        log_failure(job, item, error, seconds) if job.report_failure
        tell_rails(job, item, error)
        call_error_handlers(error, { context: "Job raised exception", job: item, jobstr: job.payload })
      end

      # The count is that of `retry_in`.
      def tell_rails(job, item, error)
        context = { class: shown_class(item), jid: job.jid, queue: job.queue,
                    retry_count: (item["retry_count"] || -1) + 1 }
        RailsErrors.report(error, SOURCE, context, log: @log)
      end

      def shown_class(item) = item["display_class"] || item["wrapped"] || item["class"]

      def log_failure(job, item, error, seconds)
        @log.warn("job failed", class: shown_class(item), jid: job.jid,
                                queue: job.queue, seconds: seconds.round(3), error: error.class.name,
                                reason: ErrorReport.message(error)[0, ErrorReport::LOGGED_MAX],
                                at: Array(error.backtrace).first.to_s)
      end

      def call_error_handlers(error, context)
        @setup.error_handlers.each { |handler| call_error_handler(handler, error, context, @setup) }
        SidekiqGem.error_handlers.each { |handler| call_error_handler(handler, error, context, SidekiqGem.config) }
      end

      def call_error_handler(handler, error, context, config)
        arity = handler.respond_to?(:arity) ? handler.arity : handler.method(:call).arity
        three = arity == 3 || arity == -3 || (arity.negative? && handler.is_a?(Proc) && !handler.lambda?)
        three ? handler.call(error, context, config) : handler.call(error, context)
      rescue Exception => e # rubocop:disable Lint/RescueException -- a broken handler must not lose the job
        @log.exception(e, "an error handler failed")
      end
    end
  end
end
