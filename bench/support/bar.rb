# frozen_string_literal: true

module Bench
  # The metrics' names in tables.
  METRIC_NAMES = { rps: "requests/s", steady_rps: "steady requests/s",
                   beside_rps: "requests/s of the second load", begin_ms: "latest begin", late_ms: "latest end",
                   max_ms: "slowest", jobs_kept: "of the jobs' pace alone",
                   p99_ms: "p99", cpu_us: "CPU per request",
                   waits: "waits per request", pss_mb: "memory", waiting_kb: "memory of each",
                   idle_waits: "idle wake-ups", rate: "jobs/s",
                   worker_cpu_us: "CPU per job", rss_mb: "resident memory", start_p99_ms: "start p99",
                   claim_p99_ms: "claim p99",
                   ideal: "of the ideal", threads_created: "threads created", fibers_created: "fibers created",
                   fiber_switches: "fiber switches", jobs_per_s: "jobs/s", work_per_cpu_s: "jobs per CPU-second",
                   peak_mb: "resident peak", last_mb: "peak of the last 20 s", climb: "that against the 20 s before",
                   after_mb: "10 s after the load", burst_2_mb: "after burst 2", burst_10_mb: "after burst 10",
                   growth: "growth", private_mb: "private memory per worker", shared_mb: "shared",
                   full_rate: "highest rate answered in full", full_rss_mb: "resident memory at it",
                   gc_us: "GC inside requests", p999_ms: "p99.9", full_inside: "full collections inside requests",
                   full_collections: "full collections", board_inside: "inside, as Chaton counts",
                   mps: "messages/s", lowest_mps: "lowest messages/s", highest_mps: "highest messages/s",
                   cpu_s_per_m: "CPU per 1 M", by_topics: "more topics against one",
                   by_threads: "more threads against one", wakeups_per_loop: "wake-ups per 10 batches",
                   driver_wakeups_per_loop: "librdkafka's", waiting_share: "the engine's thread, of a core",
                   produce_mps: "produced messages/s", consume_mps: "consumed messages/s",
                   single_p50_ms: "single durable p50", single_p99_ms: "p99", disk_p50_ms: "disk's sync p50",
                   latency_p50_ms: "produce to consume p50", latency_p99_ms: "produce to consume p99",
                   read_ahead_mb: "over idle", grown_mb: "memory of the clients", threads: "threads",
                   spread_ms: "first to last", deliveries: "deliveries/s", p50_ms: "p50",
                   missed: "missed messages", unreceived: "messages not received", repeated: "repeated",
                   gaps: "gaps", unreturned: "clients that stayed away", lost_connections: "lost connections",
                   alone_rps: "requests/s alone", kept: "of the requests alone",
                   back_p99_ms: "back after p99", back_max_ms: "at most",
                   failed: "failed requests", lost: "lost jobs",
                   cut: "failed by a kill", requests: "requests", responses: "responses",
                   different: "different", deployed_mb: "after the deploys" }.freeze
  METRIC_UNITS = { p99_ms: " ms", begin_ms: " ms", max_ms: " ms", late_ms: " ms", cpu_us: " µs",
                   pss_mb: " MB", rss_mb: " MB",
                   worker_cpu_us: " µs", start_p99_ms: " ms", claim_p99_ms: " ms",
                   peak_mb: " MB", last_mb: " MB", after_mb: " MB",
                   burst_2_mb: " MB", burst_10_mb: " MB", private_mb: " MB", shared_mb: " MB", full_rate: "/s",
                   full_rss_mb: " MB", gc_us: " µs", p999_ms: " ms", cpu_s_per_m: " s", single_p50_ms: " ms",
                   single_p99_ms: " ms", disk_p50_ms: " ms", latency_p50_ms: " ms", latency_p99_ms: " ms",
                   read_ahead_mb: " MB", waiting_kb: " KB",
                   deployed_mb: " MB",
                   grown_mb: " MB", spread_ms: " ms", p50_ms: " ms", back_p99_ms: " ms", back_max_ms: " ms" }.freeze

  # One requirement of a case: a figure of Chaton's, alone or as a ratio to the figure of another server.
  #
  # `against`:
  #   :best     the best peer's figure of the same metric
  #   :fastest  the figure of the peer that served most requests
  #   :pairs    the second server of the case, as the median of the ratios of each round
  #   a String  the best of the servers whose label begins with it, as the median of the ratios of each round
  #   nil       nothing: the figure itself is compared
  # `of`: label of the measured server, where a case has several Chatons; nil: the first server
  Bar = Struct.new(:metric, :relation, :value, :against, :of, keyword_init: true) do
    def self.at_least(metric, value, against: :best, of: nil) = new(metric:, relation: :>=, value:, against:, of:)
    def self.at_most(metric, value, against: :best, of: nil) = new(metric:, relation: :<=, value:, against:, of:)
    def self.within(metric, value, against: :pairs, of: nil) = new(metric:, relation: :within, value:, against:, of:)

    def met_by?(figure)
      return false if figure.nil? || figure.nan?
      relation == :within ? (figure - 1.0).abs <= value : figure.public_send(relation, value)
    end

    # @return [String] "requests/s 4.31× (≥ 3.5×)"
    def describe(figure)
      unit = against ? "×" : METRIC_UNITS.fetch(metric, "")
      sign = { :>= => "≥ ", :<= => "≤ ", :within => "1 ± " }.fetch(relation)
      shown = figure.nil? || figure.nan? ? "?" : "#{number(figure)}#{unit}"
      "#{[METRIC_NAMES.fetch(metric), *parties].join(" ")} #{shown} (#{sign}#{number(value)}#{unit})"
    end

    private

    # Names the compared servers where the case does not make them plain.
    def parties = [of&.then { |label| "of #{label}" }, against.is_a?(String) ? "against #{against}" : nil].compact

    def number(value) = value >= 100 ? value.round.to_s : format("%.3g", value)
  end
end
