# frozen_string_literal: true

module Chaton
  module Jobs
    # `SomeJob.set(queue: "low", wait: 60)`: enqueues with other options than the class has.
    class Setter
      # Options for the time.
      WAIT = %w[wait wait_until].freeze

      def initialize(klass, declared, options)
        @klass = klass
        @declared = declared
        @at = nil
        @changes = {}
        set(options)
      end

      # Sets further options.
      #
      # @param options [Hash] as of the class, and `wait:` (seconds), `wait_until:` (a time), `sync: true`, and
      #   `connection:`, a connection of the gem pg or of Sequel whose open transaction stores the job (PostgreSQL)
      def set(options)
        options = options.transform_keys(&:to_s)
        interval = options["wait_until"] || options["wait"]
        @at = Clock.due(interval) if interval
        @changes = @changes.merge(@klass.check_options(options.except(*WAIT, "sync", "connection")))
        @connection = options["connection"] if options.key?("connection")
        @sync = options["sync"] if options.key?("sync")
        self
      end

      # @return [String, nil] as of the class
      def perform_async(*args)
        return perform_inline(*args) if @sync

        Jobs.client.one(declared, args, @at, connection: @connection)
      end

      # @param interval [Numeric] seconds from now, or a time
      # @return [String, nil] as of the class
      def perform_in(interval, *args)
        @at = Clock.due(interval)
        perform_async(*args)
      end
      alias perform_at perform_in

      # @return [Array<String>] as of the class
      def perform_bulk(lists, at: @at, batch_size: Client::BATCH_SIZE, **more)
        Jobs.client.many(declared, lists, at: at, batch_size: batch_size, connection: @connection, **more).compact
      end

      # @return [true, nil] as of the class
      def perform_inline(*args)
        Inline.run(@klass, declared, args)
      end
      alias perform_sync perform_inline

      private

      def declared = @declared.with(@changes)
    end
  end
end
