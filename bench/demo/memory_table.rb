# frozen_string_literal: true

require_relative "table"

module Bench
  # The demo's second table: memory and garbage collection over all loads.
  class MemoryTable < Table
    COLUMNS = {
      "server" => ->(row) { row[:server] },
      "RSS MB peak" => ->(row) { format("%.0f", row[:peak_mb]) },
      "RSS MB idle" => ->(row) { format("%.0f", row[:idle_mb][:rss_mb]) },
      "PSS MB idle" => ->(row) { format("%.0f", row[:idle_mb][:pss_mb]) },
      "GC ms/1,000 requests" => ->(row) { format("%.2f", row[:gc][:gc_total_us]) },
      "inside requests" => ->(row) { format("%.2f", row[:gc][:gc_us]) },
      "collections" => ->(row) { (row[:gc][:minor] + row[:gc][:major]).to_s },
      "inside" => ->(row) { (row[:gc][:minor_inside] + row[:gc][:major_inside]).to_s },
      "full inside" => ->(row) { row[:gc][:major_inside].to_s }
    }.freeze

    private

    def columns = COLUMNS
    def text_columns = 1
  end
end
