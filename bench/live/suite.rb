# frozen_string_literal: true

require_relative "../support/bar"
require_relative "../support/case"
require_relative "../support/report"
require_relative "case_run"

module Bench
  # Event streams.
  module Live
    # `bin/bench live`; Bench::Run calls its methods.
    module Suite
      NOTES = <<~TEXT
        10,000 clients of event streams in one process, on the machine of the server, which has one process and 5
        threads. Beside it is an application on Puma that keeps the sockets which it gets (`rack.hijack`, as bodies with
        `call`) and writes to them from one thread: nothing is kept, and nobody comes back. Bodies with `call` that wait
        for their messages hold a thread each, and ActionController::Live two: these have 1,000 clients. A message has
        the time at which it was said. Memory is what the clients add (PSS).
      TEXT
      # Limits of --quick: a run for orientation, too short to be cited.
      QUICK = { rounds: 1, seconds: 30 }.freeze
      CLIENTS = 10_000

      module_function

      def name = "live"
      def programs = []
      def charts = []
      def summary(results) = Report.new(results, title: "Event streams", cases:, notes: NOTES)

      def cases = [*idle, *messages, *kills]

      def idle
        [
          row("idle", "10,000 idle clients", %i[grown_mb idle_waits threads],
              [Bar.at_most(:grown_mb, 60, against: nil)]),
          row("idle-tls", "10,000 idle clients over TLS", %i[grown_mb waiting_kb threads],
              [Bar.at_most(:grown_mb, 60 + 250, against: nil)], kind: :idle, servers: [LiveChaton.new(tls: true)]),
          # The thread that reads the log looks every 30 s, should nobody have told it of a change; the rest is timers.
          row("still", "10,000 idle clients for 30 s without comments, 45 s after they came", %i[idle_waits],
              [Bar.at_most(:idle_waits, 5, against: nil)], kind: :idle, warmup_s: 45, seconds: 30,
                                                           servers: [LiveChaton.new(ping_s: 3600)]),
          row("beside", "hello, c=100, beside 10,000 idle clients", %i[alone_rps beside_rps kept],
              [Bar.at_least(:kept, 0.97, against: nil)], seconds: 6, servers: [LiveChaton.new])
        ]
      end

      def messages
        [
          row("fan-out", "one message to 10,000 clients; then 50 at once", %i[spread_ms deliveries missed],
              [Bar.at_most(:spread_ms, 150, against: nil), Bar.at_least(:deliveries, 150_000, against: nil)],
              kind: :fan_out),
          row("peers", "1,000 clients: idle, one message, 50 at once",
              %i[grown_mb waiting_kb threads spread_ms deliveries missed], [Bar.at_least(:deliveries, 1)],
              connections: 1000, servers: [LiveChaton.new, *peers]),
          row("each", "1,000 messages/s, each to one of 10,000 clients", %i[p50_ms p99_ms missed],
              [Bar.at_most(:p99_ms, 20, against: nil)], topics: CLIENTS, rate: 1000, seconds: 10)
        ]
      end

      def peers
        threads = "1:1200"
        [LivePuma.new(threads: "5:5"), LivePuma.new(name: "call(stream)", app: "puma_threads.ru", threads:),
         LivePuma.new(name: "ActionController::Live", app: "puma_rails.ru", threads:), *LiveFalcon.installed]
      end

      def kills
        two = [LiveChaton.new(workers: 2)]
        [
          row("kills", "10,000 clients on 100 streams, 100 messages/s, 2 workers: " \
                       "one killed every 5 s, three phased restarts",
              %i[unreceived repeated gaps back_p99_ms back_max_ms],
              [Bar.at_most(:unreceived, 0, against: nil), Bar.at_most(:repeated, 0, against: nil),
               Bar.at_most(:gaps, 0, against: nil), Bar.at_most(:back_max_ms, 5000, against: nil)],
              topics: 100, rate: 100, seconds: 60, servers: two),
          row("back", "10,000 clients, 2 workers, one killed: its clients come back; hello at 200/s meanwhile",
              %i[lost_connections back_p99_ms back_max_ms unreturned p99_ms cut],
              [Bar.at_most(:back_max_ms, 5000, against: nil), Bar.at_most(:unreturned, 0, against: nil),
               Bar.at_most(:p99_ms, 50, against: nil)], seconds: 4, servers: two),
          row("back-rails", "the same in Rails, without a valid position",
              %i[lost_connections back_p99_ms back_max_ms unreturned p99_ms cut],
              [Bar.at_most(:back_max_ms, 30_000, against: nil), Bar.at_most(:unreturned, 0, against: nil)],
              kind: :back, mode: "stale", seconds: 30, servers: [LiveChaton.new(app: "chaton_rails.ru", workers: 2)])
        ]
      end

      def row(name, title, shows, bars, **given)
        Case.new(**{ name:, title:, shows:, bars:, kind: name.to_sym, rounds: 3, connections: CLIENTS, topics: 1,
                     servers: [LiveChaton.new, LivePuma.new(threads: "5:5")] }.merge(given))
      end

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        if quick
          a_case.rounds = QUICK[:rounds]
          a_case.seconds = [a_case.seconds, QUICK[:seconds]].min if a_case.seconds
        end
        CaseRun.new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
      end

      def line(a_case, figures, round)
        shown = figures.except(:server, :round)
        format("%d/%d  %-18s %s", round + 1, a_case.rounds, figures[:server],
               shown.map { |metric, value| "#{metric} #{value}" }.join("  "))
      end
    end
  end
end
