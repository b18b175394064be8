# frozen_string_literal: true

require_relative "clock"

module Chaton
  module Jobs
    # A run of a job with `options transaction: true`, where jobs are in the database of ActiveRecord: what it does
    # there and its end are one transaction. The last statement marks the job's row as ended. It finds no row if another
    # process has taken the job over. Whatever becomes of the job after that, the store takes the mark for its end: also
    # when the process dies after the COMMIT, or never hears its answer.
    class OwnWork
      # Seconds after which an open transaction gets a line in the log: until its end no table can give up dead rows.
      LONG_S = 60
      # Fiber-local key of the one that a thread runs.
      RUNNING = :chaton_own_work
      private_constant :LONG_S, :RUNNING

      # @return [Numeric] how long a transaction may be open without a line in the log (s)
      def self.long_s = LONG_S

      # @return [Boolean] whether this thread runs a job in a transaction
      def self.running? = Thread.current[RUNNING] ? true : false

      def initialize(own, native, job)
        @own = own
        @native = native
        @job = job
      end

      # @return [Object, nil] what the block returns; nil: nothing of it was written, or that is not known yet
      # @raise [ConfigError] no database of ActiveRecord is the store's
      def run(&block)
        began_s = monotonic_s
        Thread.current[RUNNING] = self
        answer = @own.pool.with_connection { |connection| connection.transaction { to_its_end(connection, &block) } }
        return answer if @marked
        return give_back if @taken

        raise @rolled_back || Error.new("a job in a transaction was left by throw: it is rolled back")
      rescue StandardError => e
        @marked ? resolve(e) : raise
      ensure
        Thread.current[RUNNING] = nil
        seconds = monotonic_s - began_s
        warn("its transaction was open for #{seconds.round} s: do less in a job with transaction: true") if
          seconds > OwnWork.long_s
      end

      private

      def to_its_end(connection)
        thrown = true
        answer = yield
        @taken = @own.value(connection, @native.own_end(@job)).nil?
        raise ::ActiveRecord::Rollback if @taken

        @marked = true
        thrown = false
        answer
      rescue Exception => e # rubocop:disable Lint/RescueException -- only noted
        thrown = false
        @rolled_back = e if e.is_a?(::ActiveRecord::Rollback)
        raise
      ensure
        # ActiveRecord commits when a block is left by `throw`.
        raise ::ActiveRecord::Rollback if thrown && Thread.current.status != "aborting"
      end

      # Another process took this one for dead. What becomes of the job here is nothing to the store.
      def give_back
        warn("another process has taken it over, since this one seemed dead; what it did here is rolled back")
        @job.requeue
        nil
      end

      # An error came with the COMMIT or after it: the store knows whether it was written.
      def resolve(error)
        case written = ask
        when true then warn("it is done; what followed its COMMIT failed: #{error.class}: #{error.message}")
        when false then raise error
        else written.nil? ? give_back : again(error)
        end
      end

      def ask
        @native.own_ended(@job)
      rescue StoreError
        :unknown
      end

      # If it was written, the store takes this for the job's end.
      def again(error)
        warn("whether it was committed is not known before the store answers; if not, it runs again: " \
             "#{error.class}: #{error.message}")
        @job.reschedule(Clock.now_s + Failures::AGAIN_S)
        nil
      end

      def warn(text) = Jobs.logger.warn("job #{@job.display_class} #{@job.jid}: #{text}")

      def monotonic_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
