# frozen_string_literal: true

require_relative "../support/case_run"
require_relative "backlog"
require_relative "latency"
require_relative "local"
require_relative "produce"
require_relative "raw"
require_relative "table"
require_relative "waits"

module Bench
  module Streams
    # Each slice has processes and a consumer group of its own. The broker is the same for all slices, so that it is
    # warm.
    class CaseRun < Bench::CaseRun
      KINDS = { table: Table, raw: Raw, waits: Waits, local: Local, produce: Produce, latency: Latency,
                backlog: Backlog }.freeze

      private

      def open
        @kind = KINDS.fetch(@case.kind).new(@case)
      end

      def measure(server) = @kind.measure(server)

      def facts
        example = ChatonStreams.new(threads: Array(@case.threads).first || 1, consumer: @case.consumer || "Untouched")
        { consumer: @case.consumer, records: @case.records, bytes: @case.bytes, command: example.command_line,
          configuration: example.configuration("FOLDER", "BROKER") }
      end
    end
  end
end
