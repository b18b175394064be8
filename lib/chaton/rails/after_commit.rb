# frozen_string_literal: true

module Chaton
  # Delays pushes until ActiveRecord's open transactions are committed. A job must not start before the records
  # it is about are visible, and not at all when they are rolled back.
  module AfterCommit
    # Since this version a connection handler lists the pools of all roles.
    RAILS_7_1 = Gem::Version.new("7.1.0.alpha")

    # Stands for a record in a transaction of Rails before 7.2, to be called at its end.
    class CommitListener
      def initialize(block, rolled_back)
        @block = block
        @rolled_back = rolled_back
      end

      # Rails calls this and the methods below on a transaction's records.
      def before_committed!(*) = nil

      def rolledback!(*, **) = @rolled_back&.call

      def trigger_transactional_callbacks? = true

      def has_transactional_callbacks? = true

      def add_to_transaction(*) = nil

      def committed!(*, **) = @block.call
    end

    class << self
      # @return [Boolean] whether this thread has a transaction open that can still be rolled back
      def waiting?
        transactions.any?
      end

      # @return [Array] the connections of this thread with such a transaction
      def open_connections
        return [] unless defined?(::ActiveRecord::Base)

        connections.select { |connection| counts?(connection.current_transaction) }
      end

      # Runs the block when all open transactions are committed: at once without one, never when one is rolled
      # back.
      #
      # @param rolled_back [#call, nil] called when one is rolled back
      # @return [Object, nil] the block's result if it ran at once
      def run(rolled_back: nil, &block)
        open = transactions
        return yield if open.empty?

        left = open.size
        step = -> { (left -= 1).zero? && block.call }
        open.each { |transaction| listen(transaction, step, rolled_back) }
        nil
      end

      # Runs the block when the open transaction of one connection is committed: at once without one.
      def behind(connection, &block)
        transaction = connection.current_transaction
        counts?(transaction) ? listen(transaction, block, nil) : yield
      end

      # @return [Array] pools of connections for writing, of which none need have been used
      def pools = ::ActiveRecord::Base.connection_handler.connection_pool_list(::ActiveRecord::Base.current_role)

      private

      def listen(transaction, step, rolled_back)
        modern = transaction.respond_to?(:after_commit)
        return transaction.add_record(CommitListener.new(step, rolled_back)) unless modern

        transaction.after_rollback(&rolled_back) if rolled_back && transaction.respond_to?(:after_rollback)
        transaction.after_commit(&step)
      end

      def transactions = open_connections.map(&:current_transaction)

      # The transaction around a test is not joinable and never commits, so it does not count.
      def counts?(transaction) = transaction.open? && transaction.joinable?

      # `active_connection?` does not check out a connection.
      def connections
        handler = ::ActiveRecord::Base.connection_handler
        @by_role = ::ActiveRecord.version >= RAILS_7_1 if @by_role.nil?
        pools = @by_role ? handler.connection_pool_list(:all) : handler.all_connection_pools
        pools.filter_map(&:active_connection?)
      end
    end
  end
end
