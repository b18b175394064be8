# frozen_string_literal: true

require_relative "values"

module Chaton
  module Streams
    # Takes the place of the client in a process that forks workers, because the threads of a client do not survive a
    # fork. It keeps records, up to the limits of the producer's buffer, and the first worker writes them.
    class Spool
      include Values

      # The receipt of a spooled record, which another process writes.
      class SpoolReceipt
        # @return [Boolean] false
        def wait(_timeout_s = nil) = false

        def done? = false

        def failed = 0

        def errors = []

        def partition = nil
        alias offset partition
      end

      # Memory of a record in addition to its bytes.
      RECORD_BYTES = 64

      def initialize(settings)
        @bytes_max = settings.log.fetch(:produce_buffer_bytes)
        @records_max = settings.log.fetch(:produce_buffer_records)
        @rows = []
        @bytes = 0
        @lock = Mutex.new
        @pid = ::Process.pid
        @token = Token.new
      end

      # @return [Boolean] whether this process is a child of the one that kept the records
      def stale? = @pid != ::Process.pid

      # As {Client#produce}.
      def produce(topic, value, key, headers, partition, timestamp)
        keep([row(topic, value, key, headers, partition, timestamp || now_ms)])
      end

      # As {Client#produce_many}.
      def produce_many(topic, values)
        now = now_ms
        keep(values.map { |value| row_of(topic, value).tap { |row| row[5] ||= now } })
      end

      # Raises, because nothing becomes durable in this process.
      #
      # @raise [StreamUnavailable]
      def wait(_receipt)
        raise StreamUnavailable, "nothing is written before workers are forked: the record is kept for the first " \
                                 "worker. Use Chaton.produce here, or write it in on_worker_boot"
      end

      # Writes the spooled records, if this is the first child to call it.
      #
      # @return [Native::Receipt, nil] nil without records, or when another child was first
      # @raise [StreamError] with the number of lost records
      def hand_over(client)
        return if @rows.empty? || !@token.take

        rows = @rows
        @rows = []
        client.produce_rows(rows)
      rescue StreamError => e
        raise e.class, "#{rows.size} records that were produced before the workers were forked are lost: #{e.message}"
      end

      private

      def keep(rows)
        raise ForkedError, "records that were kept before the fork belong to the first worker" if stale?

        @lock.synchronize do
          bytes = rows.sum { |row| RECORD_BYTES + row[1].to_s.bytesize + row[2].to_s.bytesize }
          refuse if @rows.size + rows.size > @records_max || @bytes + bytes > @bytes_max
          # Copies, because the application may change its Strings.
          @rows.concat(rows.map { |row| row.map { |part| part.is_a?(String) ? part.dup.freeze : part }.freeze })
          @bytes += bytes
        end
        SpoolReceipt.new
      end

      def refuse
        raise BufferFull, "#{@rows.size} records wait for the first worker already, and there is no room for more (" \
                          "produce_buffer_bytes); produce them in on_worker_boot"
      end

      def now_ms = ::Process.clock_gettime(::Process::CLOCK_REALTIME, :millisecond)
    end

    # A byte in an inherited pipe, which only one of several forked processes gets.
    class Token
      def initialize
        @reader, writer = IO.pipe
        writer.write("t")
        writer.close
      end

      # @return [Boolean] whether this process got it
      def take
        @reader.read_nonblock(1, exception: false) == "t"
      rescue IOError, SystemCallError
        # The inherited pipe was closed: it is unknown whether another process has it.
        false
      end
    end
  end
end
