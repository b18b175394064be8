# frozen_string_literal: true

require "json"

module Chaton
  module Jobs
    # The living workers of a store, of all machines.
    class ProcessSet
      include Enumerable

      # One of them. `work` is what it runs: Arrays of thread, queue, document and time.
      Worker = Struct.new(:native, :identity, :info, :busy, :quiet, :rss_kb, :beat_at, :work, keyword_init: true) do
        # @return [Object] a fact it gave of itself, such as "hostname" or "pid"
        def [](name) = name.is_a?(String) ? details[name] : super

        # @return [Hash{String=>Object}]
        def details = @details ||= JSON.parse(info)

        # Tells it to take no more jobs. It hears of it with its next sign of life.
        #
        # @return [void]
        def quiet! = native.signal(identity, "TSTP")

        # Tells it to stop.
        #
        # @return [void]
        def stop! = native.signal(identity, "TERM")

        # Tells it to log what its threads do.
        #
        # @return [void]
        def dump_threads = native.signal(identity, "TTIN")
      end

      # @param native [Native::JobsClient]
      def initialize(native = Jobs.client.native)
        @native = native
      end

      # @yieldparam worker [Worker]
      # @return [Enumerator, Array]
      def each(&block)
        return enum_for(:each) unless block

        @native.processes.each { |facts| yield Worker.new(native: @native, **facts) }
      end

      # @return [Integer]
      def size = count
    end
  end
end
