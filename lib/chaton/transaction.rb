# frozen_string_literal: true

require_relative "errors"

module Chaton
  # What the blocks of {Chaton.transaction} in one job or batch hold back: jobs and records, until they are written with
  # the acknowledgement of the job or the commit of the batch. It is chosen by where the end of the work is stored: here
  # a SQLite file of jobs and records. Where jobs are in the application's own PostgreSQL, the whole job is one
  # transaction there ({Jobs::OwnWork}).
  class Transaction
    # Fiber-local key of the transaction whose block runs.
    OPEN = :chaton_transaction
    # Fiber-local key of why this part of a job can have none.
    BARRED = :chaton_transaction_barred
    # Fiber-local key of what the ended blocks of a job or batch hold back.
    HELD = :chaton_held
    # Jobs held: as many as one push stores.
    JOBS_MAX = 1_000
    # Bytes of their documents, and of the records.
    BYTES_MAX = 16 << 20
    # Records held.
    RECORDS_MAX = 10_000
    private_constant :OPEN, :HELD, :BARRED, :JOBS_MAX, :BYTES_MAX, :RECORDS_MAX

    class << self
      # @return [Transaction, nil] of the block that runs on this thread
      # @private
      def current = Thread.current[OPEN]

      # Runs a block of {Chaton.transaction}. One inside another one is part of it.
      #
      # @return [Object] what the block returns
      # @private
      def run
        return yield if current || Jobs::OwnWork.running? || testing?

        held = held_by_work
        before = held.mark
        Thread.current[OPEN] = held
        answer = yield
        ended = true
        answer
      ensure
        Thread.current[OPEN] = nil if before
        held.return_to(before) if before && !ended
      end

      # Runs a job with `options transaction: true`.
      #
      # @return [Object, nil] what the block returns
      # @private
      def work(&block)
        job = WorkHandler.current_work unless testing?
        return yield unless job
        return run(&block) if Jobs.settings.store_file

        Jobs.client.work(job, &block)
      end

      # Refuses to start where jobs with `options transaction: true` cannot run.
      #
      # @raise [ConfigError] naming them
      # @private
      def check_jobs
        names = Jobs.setup.with_transaction
        return if names.empty?

        Jobs.settings.store_file ? check_file(Jobs.settings, Streams.settings) : Jobs.client.check_work
      rescue ConfigError => e
        raise ConfigError, "#{names.join(", ")}: #{e.message}"
      rescue StandardError
        # The database does not answer. Each run asks again.
      end

      # What was held back for this job or batch; called at its end.
      #
      # @param work [Native::Job, Native::Batch]
      # @return [Transaction, nil]
      # @private
      def take(work)
        held = Thread.current[HELD] or return
        Thread.current[HELD] = nil
        held if held.work.equal?(work)
      end

      # Forgets what was held back for the work of this thread, which has failed.
      #
      # @private
      def drop = Thread.current[HELD] = nil

      # Writes what was held back for this batch, if anything, with a mark of its consumer.
      #
      # @param batch [Native::Batch]
      # @param through [Integer, nil] nil: the mark is of one record, without those before it
      # @return [Boolean] whether it did, and the mark is committed
      # @private
      def mark(batch, through)
        held = Thread.current[HELD]
        return false unless held&.work.equal?(batch)
        if current || through.nil?
          raise StreamRefused,
                "what Chaton.transaction holds is written by mark behind the block, with all records up " \
                "to the marked one"
        end
        take(batch).end_batch(through)
        true
      end

      # Refuses transactions in a block.
      #
      # @param reason [String]
      # @private
      def bar(reason)
        Thread.current[BARRED] = reason
        yield
      ensure
        Thread.current[BARRED] = nil
      end

      private

      def testing? = Chaton.autoload?(:Testing).nil? && !Testing.disabled?

      def held_by_work
        barred = Thread.current[BARRED] and raise Error, barred
        work = defined?(WorkHandler) && WorkHandler.current_work
        unless work
          raise Error, "Chaton.transaction is for jobs and consumers, because what it holds is written when they " \
                       "end; elsewhere enqueue and produce without it"
        end
        held = Thread.current[HELD]
        return held if held && held.work.equal?(work)

        check(work)
        Thread.current[HELD] = new(work)
      end

      # Jobs and records must be in one file.
      def check(work)
        jobs, streams = Jobs.settings, Streams.settings
        check_file(jobs, streams)
        return unless work.respond_to?(:route) && streams.routes[work.route].engine.fetch(:concurrency) > 1

        raise ConfigError, "topic #{work.topic.inspect} has concurrency:, with which Chaton.transaction cannot " \
                           "commit its batch: take concurrency: away and give the topic more partitions"
      end

      def check_file(jobs, streams)
        return if jobs.store_file && jobs.store_file == streams.log_file

        file = jobs.store_file or
          raise ConfigError, "Chaton.transaction needs jobs and records in one SQLite file, and jobs are in " \
                             "#{jobs.store_shown}: write jobs { store \"sqlite://storage/chaton.db\" } and streams { " \
                             "broker \"sqlite://storage/chaton.db\" }; with jobs in the PostgreSQL of ActiveRecord, " \
                             "write options transaction: true in the job's class instead"
        raise ConfigError, "Chaton.transaction needs jobs and records in one file, and records are in " \
                           "#{streams.broker}: write streams { broker \"sqlite://#{file}\" }"
      end
    end

    # @return [Native::Job, Native::Batch]
    # @private
    attr_reader :work

    # @private
    def initialize(work)
      @work = work
      @pushes = []
      @rows = []
      @bytes = 0
    end

    # Holds jobs back.
    #
    # @param pushes [Array<Jobs::Push>]
    # @param batch [Jobs::BatchPushes, nil] whose block runs
    # @return [Array] those that are refused: none
    # @raise [StoreRefused] for a unique job, and for jobs of a batch
    # @private
    def push(pushes, batch = nil)
      if batch || pushes.any?(&:lock)
        raise StoreRefused, "#{batch ? "jobs of a batch" : "a unique job"} cannot be enqueued inside " \
                            "Chaton.transaction, because only the store can answer it; enqueue outside of the block"
      end
      pushes.each { |one| hold(@pushes, one, one.bytesize, JOBS_MAX, "jobs") }
      []
    end

    # Holds a record back.
    #
    # @param row [Array] topic, value, key, headers, partition, timestamp in ms
    # @raise [BufferFull]
    # @private
    def produce(row)
      hold(@rows, row, row[1].to_s.bytesize + row[2].to_s.bytesize, RECORDS_MAX, "records")
      nil
    end

    # @return [Array<Integer>] how much is held
    # @private
    def mark = [@pushes.size, @rows.size, @bytes]

    # Drops what is held since.
    # @private
    def return_to(mark)
      @pushes.slice!(mark[0]..)
      @rows.slice!(mark[1]..)
      @bytes = mark[2]
    end

    # Ends the job, and writes what was held, in one transaction.
    #
    # @raise [StoreError, StreamError] nothing was written
    # @private
    def end_job
      Native.commit_job(@work, Jobs.client.native, Streams.client.native, documents, @rows)
    end

    # Commits the batch, and writes what was held, in one transaction.
    #
    # @param through [Integer, nil] the last record that is done; nil: what the consumer has marked
    # @raise [StreamError] nothing was written
    # @private
    def end_batch(through) = Native.commit_batch(@work, Jobs.client.native, documents, @rows, through)

    private

    def documents = @pushes.map { |push| push.to_a(Jobs.client.format) }

    def hold(list, one, bytes, max, what)
      if list.size >= max || @bytes + bytes > BYTES_MAX
        raise BufferFull, "Chaton.transaction holds at most #{max} #{what} and #{BYTES_MAX} bytes for one job or " \
                          "batch; do less in it"
      end
      @bytes += bytes
      list << one
    end
  end
end
