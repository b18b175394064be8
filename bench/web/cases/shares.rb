# frozen_string_literal: true

module Bench
  module Web
    # Requests that share Ruby's lock: computing ones, ones with a time-out, and writes to a database beside others.
    module Cases
      USUAL_THREADS = %w[3:3 5:5 16:16].freeze

      module_function

      def shares = [*computing, time_outs, create_beside]

      # Requests of equal length gain nothing from taking turns, which only costs switches.
      def computing
        [5, 20].product([10, 100]).map do |ms, connections|
          Case.new(name: "compute-#{ms}-c#{connections}", title: "#{ms} ms CPU, c=#{connections}, defaults",
                   rackup: WORK, path: "/compute?#{ms}", connections:, scouts: 2, seconds: 4, warmup_s: 2,
                   servers: [Chaton.new, *USUAL_THREADS.flat_map { |threads| pumas(threads) }],
                   bars: [Bar.at_most(:cpu_us, 1.02), Bar.at_least(:rps, 0.97, against: :fastest),
                          Bar.at_most(:p99_ms, 1.1, against: :fastest)])
        end
      end

      # A request whose time-out does not arrive in time is answered with status 500, which counts as an error.
      def time_outs
        row("time-outs", "Timeout of 1 s in a request that computes, c=1, beside hello c=8",
            [Bar.at_most(:p99_ms, 1150.0, against: nil)],
            rackup: WORK, path: "/time-out", connections: 1, rounds: 4, seconds: 25, beside: ["/", 8],
            servers: [Chaton.new(threads: "5:5"), Puma.new(threads: "5:5")])
      end

      def create_beside
        row("rails-create-beside", "Rails on SQLite, create, c=5, beside hello c=10; both: 3 threads",
            [Bar.at_least(:rps, 0.9), Bar.at_least(:beside_rps, 0.9)],
            rackup: RAILS, connections: 5, warmup_s: 2, beside: ["/hello", 10],
            servers: [Chaton.new(threads: "3:3"), *pumas("3:3")], **CREATE)
      end
    end
  end
end
