# frozen_string_literal: true

require "json"
require "securerandom"
require_relative "../rails/after_commit"
require_relative "../transaction"
require_relative "arguments"
require_relative "batch_pushes"
require_relative "clock"
require_relative "declaration"
require_relative "extra"
require_relative "job_hash"
require_relative "own_transaction"

module Chaton
  module Jobs
    # Enqueues jobs. The native client writes the document of a plain job from its arguments. A job with middleware,
    # a lock, a limit, a batch or an open transaction becomes a Hash first.
    class Client
      # Jobs in one round trip of a bulk push.
      BATCH_SIZE = 1_000
      # Random bytes of a jid, written as two digits each.
      JID_BYTES = 12
      # Members of the Hash of {#push_bulk} that are not in the documents.
      BULK = %w[at spread_interval batch_size].freeze
      # Thread-local key of the {BatchPushes} of the batch whose `jobs` block runs.
      BATCH = :chaton_batch

      # @param settings [Hash{Symbol=>Object}] {Config::JobsSettings#store_settings}
      # @param forks [Boolean] whether this process forks workers, which may use the client
      # @private
      def self.for(settings, forks: false)
        require_relative "../native"
        native = Native::JobsClient.new(JSON.generate(settings.merge(forks: forks)))
        client = new(native, format: settings.fetch(:format))
        ProcessEnd.run { client.finish } if settings[:reliable_push]
        client
      end

      # @private
      attr_reader :native
      # @return [Integer] generation of the format: 6, 7 or 8
      # @private
      attr_reader :format

      def initialize(native, format: 7, setup: Jobs.setup)
        @native = native
        @format = format
        @setup = setup
        @own = OwnTransaction.new(native)
      end

      # @return [Boolean] whether a transaction is open in which jobs are stored
      # @private
      def own_transaction? = !@own.connection.nil?

      # Runs a job in a transaction of the application.
      #
      # @see OwnWork
      # @private
      def work(job, &block) = OwnWork.new(@own, @native, job).run(&block)

      # @return [Boolean] whether a connection is to the database of the store
      # @private
      def own?(connection) = @own.own?(connection)

      # Stores records for the log in a transaction of the application.
      #
      # @param rows [Array<Array>] as the native client takes them
      # @return [nil]
      # @private
      def outbox(rows, connection) = @own.outbox(rows, connection)

      # @raise [ConfigError] {#work} cannot
      # @private
      def check_work = @own.pool

      # @see OwnTransaction#elsewhere
      # @private
      def elsewhere = @own.elsewhere

      # Enqueues one job of a class.
      #
      # @param at [Float, nil] when it is due; nil: now
      # @param retry_of [String, nil] jid of the running job that it continues and whose lock it takes over
      # @param connection [Object, nil] see {OwnTransaction#check}
      # @return [String, nil] its jid; nil when middleware stopped it or its lock is held
      # @private
      def one(declared, args, at = nil, retry_of: nil, connection: nil)
        args = accept(declared, args)
        jids = push_plain(declared, [args], at, retry_of) if !connection && plain?(declared)
        return jids.first if jids

        submit([declared.item(args)], [at], declared, retry_of, connection).first
      end

      # Enqueues many jobs of a class.
      #
      # @param lists [Enumerable<Array>] the arguments of each
      # @param spread_interval [Numeric, nil] see {JobHash.times}
      # @return [Array<String, nil>] as {#one} for each
      # @private
      def many(declared, lists, at: nil, batch_size: BATCH_SIZE, spread_interval: nil, connection: nil)
        times = JobHash.times(at, spread_interval, lists)
        each_slice(declared, lists, times, batch_size) { |slice, due| slice_of(declared, slice, due, connection) }
      end

      # Enqueues a Hash with class, args and any options, as Sidekiq::Client does.
      #
      # @return [String, nil] as {#one}
      def push(item)
        declared, rest = declared_of(item)
        at = JobHash.time(item["at"]) if item.key?("at")
        submit([declared.item(accept(declared, item["args"])).merge(rest)], [at], declared).first
      end

      # As {#push}, with an Array of argument lists.
      #
      # @return [Array<String, nil>] as {#push} for each
      # @param items [Hash{String=>Object}] its `at` may be an Array; see {#many} for `batch_size` and
      #   `spread_interval`
      def push_bulk(items)
        declared, rest = declared_of(items)
        at, spread, batch_size = BULK.map { |name| items[name] || items[name.to_sym] }
        rest = rest.except(*BULK, *BULK.map(&:to_sym))
        lists = items["args"]
        if rest["jid"] && lists.size != 1
          raise ArgumentError, "Explicitly passing 'jid' when pushing more than one job is refused, since each has " \
                               "a jid of its own: #{items.inspect}"
        end

        times = JobHash.times(at, spread, lists)
        each_slice(declared, lists, times, batch_size || BATCH_SIZE) do |slice, due|
          submit(slice.map { |args| declared.item(args).merge(rest) }, Array(due), declared)
        end
      end

      # Runs client middleware on a due job and moves it to its queue. Its lock and its batch already count it.
      #
      # @return [Boolean] false when middleware stopped it
      # @private
      def push_due(item)
        item = through_middleware(item["class"], item) or return false

        push = Push.new(item, nil, nil, nil)
        @native.push(*push.to_a(@format))
        true
      end

      # Runs a `jobs` block of a batch: what it enqueues belongs to the batch, and is pushed when it ends.
      #
      # @param bid [String]
      # @private
      def in_batch(bid)
        outer = Thread.current[BATCH]
        pushes = Thread.current[BATCH] = BatchPushes.new(bid, method(:refused))
        yield
        pushes.finish
        ended = true
      ensure
        Thread.current[BATCH] = outer
        pushes.give_up unless ended
      end

      # Waits until the jobs that are kept in memory are sent, for `reliable_push_timeout_s` or for `time_s`, whichever
      # is longer.
      #
      # @param log [Telemetry::Log, nil] nil: standard error
      # @return [Integer] jobs that are lost
      # @private
      def finish(log: nil, time_s: 0.0)
        @own.finish
        count, classes = @native.finish_pushes(time_s)
        return 0 unless count

        require_relative "../telemetry/log"
        log ||= Telemetry::Log.new(io: $stderr)
        log.error("jobs that were kept in memory (reliable_push) could not be sent before the process ended, and " \
                  "are lost", count: count, classes: classes, store: @native.address)
        count
      end

      # @return [Boolean] whether there is client middleware
      # @private
      def middleware? = !client_middleware.empty? || !SidekiqGem.client_chain.nil?

      # @param chain [Chain]
      # @return [Client] the same with this client middleware instead of the application's
      # @private
      def with(chain) = dup.tap { |copy| copy.client_middleware = chain }

      protected

      attr_writer :client_middleware

      private

      def client_middleware = @client_middleware || @setup.client_middleware

      def accept(declared, args)
        mode = @setup.complex_arguments
        mode == :raise ? args : Arguments.accept(declared.class_name, args, mode)
      end

      def plain?(declared)
        declared.plain? && !middleware? && !Thread.current[BATCH] && !Transaction.current
      end

      # @return [Array<String>, nil] nil: they wait for a commit that does not store them
      def push_plain(declared, lists, due, retry_of = nil)
        open = declared.with_transaction? ? AfterCommit.open_connections : []
        return @native.push_args(declared.queue, declared.head, lists, due) if open.empty?

        own = @own.connection(open) unless retry_of
        @own.push_args(own, declared, lists, due) if own
      end

      # @yieldparam due [Array<Float>, Float, nil] the slice's times
      def each_slice(declared, lists, times, size)
        first = 0
        jids = lists.each_slice(size).flat_map do |slice|
          due = times.is_a?(Array) ? times[first, slice.size] : times
          first += slice.size
          slice = slice.map { |args| accept(declared, args) } unless @setup.complex_arguments == :raise
          yield slice, due
        end
        jids.is_a?(Enumerator::Lazy) ? jids.force : jids
      end

      def slice_of(declared, slice, due, connection)
        jids = push_plain(declared, slice, due) if !connection && plain?(declared)
        jids || submit(slice.map { |args| declared.item(args) }, Array(due), declared, nil, connection)
      end

      # @return [Array<String, nil>] a jid for each item
      def submit(items, times, declared, retry_of = nil, connection = nil)
        now = Clock.now_s
        pushes = items.each_with_index.map do |item, index|
          at = times.size > 1 ? times[index] : times.first
          prepare(declared.klass, item, at, now)
        end
        wanted = pushes.compact
        locked = wanted.empty? ? [] : store(wanted, declared, retry_of, connection)
        pushes.map { |push| push.jid if push && !locked.include?(push) }
      end

      # @return [Array<Push>] those that were not stored because their locks are held
      def store(pushes, declared, retry_of, connection)
        return own_push(@own.check(connection), pushes) if connection

        batch = Thread.current[BATCH]
        transaction = Transaction.current
        return transaction.push(pushes, batch) if transaction

        # A batch is stored when its block ends, and a retry takes the lock over from the running job.
        own = @own.connection if declared.with_transaction? && !batch && !retry_of && AfterCommit.waiting?
        return own_push(own, pushes) if own

        after_commit = declared.after_commit? && AfterCommit.waiting?
        return AfterCommit.run { store_now(pushes, batch, retry_of) } || [] if after_commit

        store_now(pushes, batch, retry_of)
      end

      # Jobs with locks are not kept in a batch's block, since their callers are told who holds the lock.
      def store_now(pushes, batch, retry_of)
        return batch.add(pushes) if batch && (batch.given_up? || pushes.none?(&:lock))

        pushes.each { |push| @native.unlock(push.lock.first, retry_of) if push.lock } if retry_of
        locked = refused(pushes)
        # A retry is stored also without the lock, as those in the retry set are.
        retry_of ? refused(locked.each(&:drop_lock)) : locked
      end

      # Stores the pushes.
      #
      # @return [Array<Push>] as of {#store}
      def refused(pushes)
        return pushes if pushes.empty?

        locked(pushes, @native.push_many(pushes.map { |push| push.to_a(@format) }))
      end

      # @return [Array<Push>] as of {#store}
      def own_push(connection, pushes) = locked(pushes, @own.push(connection, pushes.map { |push| push.to_a(@format) }))

      def locked(pushes, holders) = pushes.zip(holders).filter_map { |push, holder| push if holder }

      # @return [Push, nil] nil: middleware stopped it
      def prepare(klass, item, at, now)
        item["jid"] ||= SecureRandom.hex(JID_BYTES)
        item["created_at"] ||= Clock.stamp(@format, now)
        item["at"] = at.to_f if at
        bid = Thread.current[BATCH]&.bid
        item["bid"] = bid if bid
        item = through_middleware(klass, item) or return

        item["class"] = item["class"].to_s
        item["queue"] = item["queue"].to_s
        raise ArgumentError, "#{item["class"]}: a job must have the name of a queue" if item["queue"].empty?

        Arguments.check(item["class"], item["args"])
        lock = Extra.new(item, now).apply
        Push.new(item, item.delete("at"), lock, bid)
      end

      # @return [Hash, nil] the item, changed or not
      def through_middleware(klass, item)
        queue = item["queue"]
        gem_chain = SidekiqGem.client_chain
        pool = SidekiqGem.redis_pool if middleware?
        kept = client_middleware.invoke(klass, item, queue, pool) do
          gem_chain ? gem_chain.invoke(klass, item, queue, pool) { item } : item
        end
        # Any true value means yes: some middleware returns another object than the job.
        kept ? item : nil
      end

      # @return [Array(Declaration, Hash)] the declaration, and the members that are no options of the class
      def declared_of(item)
        klass = JobHash.check(item)["class"]
        options = Options.of(klass)
        wrapped = item["wrapped"]
        options = options.merge(wrapped.get_sidekiq_options) if wrapped.respond_to?(:get_sidekiq_options)
        rest = item.except("class", "args", "at")
        rest["wrapped"] = wrapped.to_s if wrapped
        [Declaration.new(klass, options.merge(rest.slice("queue", *Options::CLIENT))), rest.except(*Options::CLIENT)]
      end
    end

    # A job ready to be stored. Its document is written at once, so that it does not change with the caller's
    # objects during a transaction. Only `enqueued_at` is added when it is stored.
    class Push
      attr_reader :jid
      # @return [Array(String, String, Float), nil] see {Extra#apply}
      attr_reader :lock

      # @param item [Hash{String=>Object}] the document
      # @param bid [String, nil] the batch to count it in
      def initialize(item, at, lock, bid)
        @jid = item["jid"]
        @queue = item["queue"]
        @at = at
        @lock = lock
        @bid = bid
        @item = item
        @body = JSON.generate(item.except("at", "enqueued_at"), max_nesting: false)
      end

      # @return [Integer] bytes of its document
      def bytesize = @body.bytesize

      def drop_lock
        @lock = nil
      end

      # @return [Array] the arguments of the native client's `push`
      def to_a(format)
        # Middleware that has kept the Hash finds the time in it, as with Sidekiq.
        @item["enqueued_at"] = Clock.stamp(format) unless @at || waiting?
        payload = @at ? @body : "#{@body.chop},\"enqueued_at\":#{@item["enqueued_at"]}}"
        [@queue, payload, @at, @lock, @bid]
      end

      private

      # A job that waits behind a limit keeps its first time.
      def waiting?
        chaton = @item["chaton"]
        @item["enqueued_at"] && chaton.is_a?(Hash) && chaton["since"]
      end
    end

    # Runs blocks at the end of a process, also when that is `exit!`, which runs no `at_exit`.
    module ProcessEnd
      @blocks = []

      class << self
        # @yield at the end of this process, and of its forked children
        def run(&block)
          hook if @blocks.empty?
          @blocks << block
          at_exit(&block)
        end

        # @private
        def call = @blocks.each(&:call)

        private

        # `Object` has Kernel's private `exit!`; an included module comes before Kernel.
        def hook
          [::Process, ::Kernel].each { |receiver| receiver.singleton_class.prepend(Exit) }
          Object.include(Exit)
          Object.class_eval { private :exit! }
        end
      end

      # The three ways to write `exit!`.
      module Exit
        def exit!(...)
          ProcessEnd.call
        ensure
          super
        end
      end
    end
  end
end
