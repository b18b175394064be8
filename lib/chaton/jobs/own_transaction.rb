# frozen_string_literal: true

require_relative "../rails/after_commit"

module Chaton
  module Jobs
    # Stores jobs on a connection of the application, in the transaction that is open there, where that is to the
    # database of the store (PostgreSQL): its COMMIT stores them with the application's own rows, its rollback takes
    # both back, and no crash falls between the two. The statements are the store's.
    #
    # The transaction tells nobody: a NOTIFY takes a lock of the whole server at the commit. So others are woken after
    # it, on a connection of the store.
    class OwnTransaction
      # Queues told of in one go.
      QUEUES_MAX = 100
      # Seconds that the thread which tells waits for a further commit, and the end of the process for the thread.
      TELLER_S = 1
      # Seconds between two announcements: each takes a lock of the whole server, and a claim takes many jobs at once.
      PAUSE_S = 0.005
      # Seconds after a statement of the gem pg, whose commit is not seen, at which others are told: most transactions
      # are short.
      LATER_S = [0.02, 0.2, 2].freeze
      private_constant :QUEUES_MAX, :TELLER_S, :PAUSE_S, :LATER_S

      def initialize(native)
        @native = native
        # By connection, or by pool of connections: whether it is to the store's database.
        @ours = ObjectSpace::WeakMap.new
        @lock = Mutex.new
        # Queues to tell of, by when (in PAUSE_S).
        @due = Hash.new { |due, at| due[at] = [] }
        @committed = ConditionVariable.new
      end

      # @param open [Array] connections of ActiveRecord
      # @return [Object, nil] the one that has a transaction open in the store's database
      def connection(open = AfterCommit.open_connections) = open.find { |connection| own?(connection) }

      # @param connection [Object] as of {#check}
      # @return [Boolean] whether it is to the database of the store
      def own?(connection) = possible? && ours?(connection)

      # Checks a connection that was passed with a job.
      #
      # @param connection [Object] of ActiveRecord, of the gem pg, or a database of Sequel
      # @raise [ConfigError] it is to another database
      def check(connection)
        return connection if own?(connection)

        raise ConfigError, "connection: is not to the database of the store (jobs { store … }), which " \
                           "has to be PostgreSQL, or may not store jobs there: leave connection: out, or see " \
                           "`chaton check`"
      end

      # @param rows [Array<Array>] see {Push#to_a}
      # @return [Array<String, nil>] the holders of locks that are not free
      def push(connection, rows)
        holders = rows.map { |row| value(connection, @native.own_lock(*row[3])) if row[3] }
        free = rows.zip(holders).filter_map { |row, holder| row unless holder }
        return holders if free.empty?

        insert(connection, @native.own_push(free))
        tell_later(connection, free.filter_map { |row| row[0] unless row[2] }.uniq)
        holders
      end

      # Stores plain jobs.
      #
      # @param lists [Array<Array>] their arguments
      # @return [Array<String>] their jids
      def push_args(connection, declared, lists, at)
        statement, jids = @native.own_push_args(declared.queue, declared.head, lists, at)
        insert(connection, statement)
        tell_later(connection, at ? [] : [declared.queue])
        jids
      end

      # Stores records for the log.
      #
      # @param given [Object, nil] a connection as of {#check}
      # @raise [ConfigError] the store is not PostgreSQL
      # @raise [Error] no transaction is open
      def outbox(rows, given)
        unless possible?
          raise ConfigError, "outbox: true keeps records in the PostgreSQL of the jobs, and they are in " \
                             "#{Jobs.settings.store_shown}: write jobs { store :active_record }, or produce after " \
                             "the commit without outbox:"
        end
        connection = given ? check(given) : self.connection
        unless connection
          raise Error, "outbox: true is for a transaction of the store's database, and none is open on this thread: " \
                       "call it inside Order.transaction { … }, or pass connection: of the gem pg or Sequel"
        end
        insert(connection, Native.outbox_insert(@native, rows)) unless rows.empty?
        tell_later(connection, [nil])
        nil
      end

      # @return [ActiveRecord::ConnectionAdapters::ConnectionPool] of the store's database
      # @raise [ConfigError] there is none
      # @private
      def pool
        pools.find { |pool| our_pool?(pool) } or
          raise ConfigError, "options transaction: true needs jobs in the PostgreSQL database of ActiveRecord (jobs " \
                             "{ store :active_record }), or jobs and records in one SQLite file; they are in " \
                             "#{Jobs.settings.store_shown}"
      end

      # @return [String, nil] what a person should know: ActiveRecord has a database, and no connection to the store's
      # @private
      def elsewhere
        return if pools.empty? || pools.any? { |pool| our_pool?(pool) }

        "ActiveRecord has no connection to the database of the jobs (#{Jobs.settings.store_shown}): those that are " \
          "enqueued in its transactions are stored after the commit, and a crash between the two loses them"
      rescue StandardError
        # One of the databases does not answer.
      end

      # @return [Object, nil] the first value of the first row
      # @private
      def value(connection, sql)
        return connection.exec_query(sql, "Chaton").rows.dig(0, 0) if active_record?(connection)
        return connection.exec(sql).values.dig(0, 0) if connection.respond_to?(:exec)

        connection.fetch(sql).first&.values&.first
      end

      # Tells the rest, at the end of the process.
      def finish
        @lock.synchronize do
          rest = @due.values.flatten.uniq
          @due.clear[0] = rest unless rest.empty?
          @ends_now = true
          @committed.signal
        end
        @teller&.join(TELLER_S)
      end

      private

      def possible?
        @database = @native.own_database || false if @database.nil?
        @database ? true : false
      end

      # `exec_query` makes a result of columns and types, too (measured: 54 us of the processor for a job, or 45).
      def insert(connection, sql)
        active_record?(connection) ? connection.execute(sql, "Chaton").clear : value(connection, sql)
      end

      def pools = possible? && defined?(::ActiveRecord::Base) ? AfterCommit.pools : []

      def our_pool?(pool) = @ours.key?(pool) ? @ours[pool] == :ours : pool.with_connection { |one| ours?(one) }

      # A pool's connections are to one database.
      def ours?(connection)
        key = active_record?(connection) ? connection.pool : connection
        known = @ours[key]
        return known == :ours unless known.nil?

        @ours[key] = same?(connection) ? :ours : :other
        @ours[key] == :ours
      end

      # Asked of both at the same time: the answer changes when the server is started again.
      def same?(connection)
        return false if active_record?(connection) && !connection.adapter_name.match?(/postg/i)

        question, answer = @native.own_database
        !answer.nil? && value(connection, question) == answer
      end

      def active_record?(connection) = connection.respond_to?(:exec_query)

      def tell_later(connection, queues)
        return if queues.empty?
        return AfterCommit.behind(connection) { tell(queues) } if active_record?(connection)
        return connection.after_commit { tell(queues) } if connection.respond_to?(:after_commit)

        tell(queues, LATER_S)
      end

      # Nobody waits for the answer: a thread tells, of all that was committed since it has told the last time.
      #
      # @param queues [Array<String, nil>] nil: the outbox
      def tell(queues, after_s = [0])
        @lock.synchronize do
          after_s.each { |seconds| @due[now + (seconds / PAUSE_S).to_i] |= queues }
          @ends ||= at_exit { finish }
          @teller = Thread.new { tell_all }.tap { |thread| thread.name = "chaton tells" } unless @teller&.alive?
          @committed.signal
        end
      end

      def now = (::Process.clock_gettime(::Process::CLOCK_MONOTONIC) / PAUSE_S).to_i

      # Ends when nothing was committed for some time.
      def tell_all
        until (told = next_told).empty?
          @native.announce(told)
          sleep PAUSE_S
        end
      rescue StoreError
        # The jobs are stored. Workers look for them by themselves, too.
      end

      # @return [Array<String>] empty: there are none
      def next_told
        @lock.synchronize do
          until (due = @due.keys.select { |at| at <= now }).any?
            idle = @due.empty?
            break if idle && @ends_now

            @committed.wait(@lock, idle ? TELLER_S : (@due.keys.min - now) * PAUSE_S)
            break if idle && @due.empty?
          end
          told = due.flat_map { |at| @due.delete(at) }.uniq
          @due[now] = told.slice!(QUEUES_MAX..) if told.size > QUEUES_MAX
          @teller = nil if told.empty?
          told
        end
      end
    end
  end
end
