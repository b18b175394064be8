# frozen_string_literal: true

require_relative "../consumer"
require_relative "../errors"
require_relative "../work_handler"
require_relative "."

module Chaton
  module Streams
    # Runs a batch. Whatever the consumer does, the batch ends: done, failed or abandoned.
    class Handler < WorkHandler
      # The hook of each kind of notice.
      HOOKS = { revoked: :revoked, shutdown: :shutdown, end: :eof }.freeze
      SHUTDOWN = Shutdown
      SOURCE = Failures::SOURCE
      # Logged in a child that a consumer forked.
      CHILD_FAILED = "a child that a consumer forked failed; the batch itself goes on"

      def initialize(settings, log:, finder: Finder.new)
        super(log: log)
        @routes = settings.routes
        @limits = Transaction::Limits.of(settings)
        @finder = finder
        @failures = Failures.new(log: log)
        @factories = {}
        @instances = Instances.new
      end

      # @return [Array<Integer>] routes whose consumers define `eof`
      def of_eof = @routes.each_index.select { |route| factory(route).eof? }

      private

      def run(batch, started_s)
        kind = batch.kind
        return notify(batch, HOOKS.fetch(kind)) unless kind == :records

        factory = factory(batch.route)
        given = batch
        instance = @instances.of(batch, factory)
        given = factory.prepare(batch, instance)
        consume(factory, instance, given) unless given.empty?
        raise ForkedError, "a child came out of the consumer" if forked?

        commit_held(batch)
        # The consumer may have ended it.
        batch.done if batch.open?
        log_done("batch done", batch, started_s, records: batch.size) if @debug
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in a consumer must not end the worker
        fail_work(batch, e, given, started_s)
      end

      def commit_held(batch)
        held = Chaton::Transaction.take(batch) or return
        if @routes[batch.route].engine.fetch(:manual)
          raise StreamRefused,
                "nothing of Chaton.transaction was written: with manual offsets it is written by mark, " \
                "behind the block"
        end
        held.end_batch(batch.last_offset)
      end

      def consume(factory, instance, given)
        return factory.consume(instance, given) unless factory.wait_for_deliveries?

        Deliveries.follow { factory.consume(instance, given) }
      end

      def factory(route)
        @factories[route] ||= ConsumerFactory.new(@routes.fetch(route), limits: @limits, finder: @finder)
      end

      # A hook that fails is logged.
      def notify(batch, hook)
        instances = hook == :eof ? [@instances.of(batch, factory(batch.route))] : @instances.remove(batch)
        instances.each do |instance|
          instance.batch = batch
          instance.public_send(hook)
        rescue Exception => e # rubocop:disable Lint/RescueException -- one hook is not the worker
          leave_child(batch, e) if forked?
          @failures.of_hook(batch, e, "#{instance.class.name}##{hook}")
        end
      ensure
        batch.done if !forked? && batch.open?
      end

      def handle_failure(batch, error, given, seconds)
        return @log.exception(error, "a consumer failed after it had ended its batch itself") unless batch.open?
        return batch.abandon if Shutdown.behind?(error)

        @failures.fail(batch, error, given, consumer: name_of(batch), seconds: seconds)
      end

      def run_again(batch, error)
        @log.exception(error, "a failed batch could not be ended as failed; it is handed out again",
                       batch: batch.describe)
        batch.abandon if batch.open?
      end

      def killed(batch, _started_s)
        return if forked?

        @log.warn("a thread was killed while it ran a batch, which is handed out again", **facts(batch))
        batch.abandon
      end

      # Notices still run.
      def given_up?(batch) = batch.kind == :records

      def facts(batch) = { consumer: name_of(batch), batch: batch.describe }

      def name_of(batch) = @factories[batch.route]&.name || @routes[batch.route]&.consumer.to_s

      def forget_classes = [@factories, @instances].each(&:clear)
    end

    # The consumers of a process: one for each assigned partition and key lane. A partition that is assigned again gets
    # new ones.
    class Instances
      # The consumers of one partition, by key lane.
      ByLane = Struct.new(:generation, :consumers)

      def initialize
        @partitions = {}
        @lock = Mutex.new
      end

      # @param factory [ConsumerFactory] makes the consumer if there is none
      def of(batch, factory)
        # No lock: a lane has one batch at a time.
        by_lane(batch).consumers[batch.lane] ||= factory.instance
      end

      # @return [Array<Consumer>] the consumers of its partition, which are removed
      def remove(batch)
        @lock.synchronize do
          by_lane = @partitions[key(batch)]
          return [] unless by_lane && by_lane.generation <= batch.generation

          @partitions.delete(key(batch))
          by_lane.consumers.values
        end
      end

      # Removes all, because their classes are reloaded.
      def clear = @partitions.clear

      def size = @partitions.sum { |_, by_lane| by_lane.consumers.size }

      private

      # Several lanes may start at the same time.
      def by_lane(batch)
        @lock.synchronize do
          by_lane = @partitions[key(batch)]
          next by_lane if by_lane&.generation == batch.generation

          @partitions[key(batch)] = ByLane.new(batch.generation, {})
        end
      end

      def key(batch) = [batch.route, batch.partition]
    end
  end
end
