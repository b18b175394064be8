# frozen_string_literal: true

module Chaton
  module Jobs
    # Pushes that wait for the end of ActiveRecord's open transactions: a job must not start before what it is
    # about can be seen, and must not start at all when that is rolled back.
    module AfterCommit
      # From here on a handler lists the pools of all roles on request.
      RAILS_7_1 = Gem::Version.new("7.1.0.alpha")

      # What a transaction of Rails before 7.2 tells the end to. It stands where a record would.
      class Listener
        # @param block [#call]
        def initialize(block)
          @block = block
        end

        # Rails asks this, and the four below, of everything that takes part in a transaction.
        def before_committed!(*) = nil

        # What was rolled back is forgotten.
        def rolledback!(*, **) = nil

        # @return [Boolean]
        def trigger_transactional_callbacks? = true

        # @return [Boolean]
        def has_transactional_callbacks? = true

        # It is in it already.
        def add_to_transaction(*) = nil

        # @return [void]
        def committed!(*, **) = @block.call
      end

      class << self
        # @return [Boolean] whether this thread has a transaction open that can still be rolled back
        def waiting?
          transactions.any?
        end

        # Runs the block when all of them are committed; at once where there is none, never where one of them
        # is rolled back.
        #
        # @return [Object, nil] what the block answered if it ran
        def run(&block)
          open = transactions
          return yield if open.empty?

          left = open.size
          step = -> { (left -= 1).zero? && block.call }
          open.each { |transaction| listen(transaction, step) }
          nil
        end

        private

        def listen(transaction, step)
          return transaction.after_commit(&step) if transaction.respond_to?(:after_commit)

          transaction.add_record(Listener.new(step))
        end

        # The transaction around a test is not joinable: it never commits, and what is inside behaves as if
        # it were not there.
        def transactions
          return [] unless defined?(::ActiveRecord::Base)

          connections.filter_map do |connection|
            transaction = connection.current_transaction
            transaction if transaction.open? && transaction.joinable?
          end
        end

        # A pool answers the connection that this thread has of it, and gives it none if it has none.
        def connections
          handler = ::ActiveRecord::Base.connection_handler
          pools = ::ActiveRecord.version < RAILS_7_1 ? handler.all_connection_pools : handler.connection_pool_list(:all)
          pools.filter_map(&:active_connection?)
        end
      end
    end
  end
end
