# frozen_string_literal: true

require "json"

module Chaton
  module Jobs
    # The running workers of a store, on all machines.
    class ProcessSet
      include Enumerable

      # A worker. `work` lists its running jobs: Arrays of thread, queue, document and time.
      Worker = Struct.new(:native, :identity, :info, :busy, :quiet, :rss_kb, :beat_at, :work, keyword_init: true) do
        # @return [Object] a detail such as "hostname" or "pid"
        def [](name) = name.is_a?(String) ? details[name] : super

        # @return [Hash{String=>Object}]
        def details = @details ||= JSON.parse(info)

        # Makes it claim no more jobs, with its next heartbeat.
        def quiet! = native.signal(identity, "TSTP")

        # Makes it stop, with its next heartbeat.
        def stop! = native.signal(identity, "TERM")

        # Makes it log the backtraces of its threads, with its next heartbeat.
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

      def size = count
    end
  end
end
