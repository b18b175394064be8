# frozen_string_literal: true

module Bench
  module Gc
    # Renders the first round of the curve: one row for each offered rate, one column for each server.
    module CurveTable
      module_function

      # @param verdicts [Array<Verdict>]
      # @return [String, nil] nil when the curve was not measured
      def render(verdicts)
        verdict = verdicts.find { |found| found.a_case.kind == :curve }
        slices = verdict ? verdict.raw["slices"].select { |slice| slice["round"].zero? && slice["steps"] } : []
        return if slices.empty?
        rates = slices.flat_map { |slice| slice["steps"].map { |step| step["rate"] } }.uniq.sort
        ["", "## The curve", "",
         "First round. Offered rate: answered in time per second, p99 and p99.9 in ms, RSS in MB, GC inside requests " \
         "in µs each; ~~struck out~~: it fell behind.", "",
         "| offered/s | #{slices.map { |slice| slice["server"] }.join(" | ")} |", "|---:|#{"---|" * slices.size}",
         *rates.map { |rate| "| #{rate.round} | #{slices.map { |slice| cell(slice, rate) }.join(" | ")} |" }].join("\n")
      end

      def cell(slice, rate)
        step = slice["steps"].reverse.find { |found| found["rate"] == rate } or return ""
        text = format("%.0f, %.1f / %.1f, %.0f, %.0f",
                      *step.values_at("achieved_rate", "p99_ms", "p999_ms", "rss_mb", "gc_us"))
        step["kept_up"] ? text : "~~#{text}~~"
      end
    end
  end
end
