# frozen_string_literal: true

require_relative "../support/bar"
require_relative "../peers/chaton"
require_relative "../peers/puma"
require_relative "../support/case"

module Bench
  module Web
    APPS = File.expand_path("apps", __dir__)
    HELLO = File.join(APPS, "hello.ru")
    WORK = File.join(APPS, "work.ru")
    SINATRA = File.expand_path("../../examples/sinatra/config.ru", __dir__)

    # All cases of the suite, in the order of the table.
    module Cases
      CONNECTIONS = [10, 100, 300].freeze
      HELLO_BARS = { 10 => 2.0, 100 => 3.5, 300 => 4.0 }.freeze

      module_function

      # @return [Array<Case>]
      def all
        [*hello, threads, sinatra, *rails, *common, *sleeping, hog, *shares, *bodies, *responses, *edge, *tls, *http2,
         workers, balance, traces, *arena]
      end

      def hello
        CONNECTIONS.map do |connections|
          bars = [Bar.at_least(:rps, HELLO_BARS.fetch(connections)), Bar.at_most(:cpu_us, 0.2)]
          bars << Bar.at_most(:p99_ms, 0.5) if connections >= 100
          row("hello-c#{connections}", "hello, keep-alive, c=#{connections}, 5 threads", bars, connections:)
        end
      end

      def threads
        Case.new(name: "threads", title: "hello, c=100, Chaton -t 1:1 against -t 1:64", rackup: HELLO, path: "/",
                 connections: 100, rounds: 9, seconds: 2,
                 servers: [Chaton.new(threads: "1:64"), Chaton.new(threads: "1:1")],
                 bars: [Bar.within(:rps, 0.05), Bar.within(:waits, 0.05)])
      end

      def sinatra
        row("sinatra", "Sinatra hello, c=100, 5 threads", [Bar.at_least(:rps, 2.5)], rackup: SINATRA)
      end

      # Chaton with its defaults, against the fastest of Puma's usual settings.
      def common
        pumas = USUAL_THREADS.flat_map { |threads| pumas(threads) }
        { "/page" => "3 × 2 ms IO + 3 ms CPU", "/quick" => "1 ms IO + 0.2 ms CPU",
          "/records" => "10 × 0.5 ms IO + 2.3 ms CPU" }.flat_map do |path, work|
          [10, 100].map do |connections|
            Case.new(name: "common#{path.tr("/", "-")}-c#{connections}", title: "#{work}, c=#{connections}, defaults",
                     group: "common", rackup: WORK, path:, connections:, servers: [Chaton.new, *pumas], scouts: 2,
                     seconds: 2, warmup_s: 1,
                     bars: [Bar.at_least(:rps, 1.0, against: :fastest),
                            Bar.at_most(:p99_ms, 1.0, against: :fastest)])
          end
        end
      end

      # Chaton only has a high maximum of threads; Puma is given as many threads as the load needs. Puma is not pinned
      # here, because one core does not help threads that sleep.
      def sleeping
        [0.1, 0.5].product(CONNECTIONS).map do |delay_s, connections|
          Case.new(name: "sleep-#{delay_s}-c#{connections}", title: "sleep #{delay_s} s, c=#{connections}",
                   rackup: WORK, path: "/sleep?#{delay_s}", connections:, warmup_s: 2, seconds: delay_s < 0.5 ? 2 : 3,
                   servers: [Chaton.new(threads: "1:512"), Puma.new(threads: "300:300")],
                   bars: [Bar.at_least(:steady_rps, 0.95 * connections / delay_s, against: nil),
                          Bar.at_least(:steady_rps, 0.99)])
        end
      end

      def hog
        row("hog", "hello, c=10, beside 2 clients that loop 300 ms of CPU",
            [Bar.at_least(:rps, 4.0), Bar.at_most(:p99_ms, 30.0, against: nil)],
            rackup: WORK, connections: 10, seconds: 3, beside: ["/burn", 2])
      end

      def bodies
        [
          row("post", "POST 1 KB with Content-Length, c=100", [Bar.at_least(:rps, 4.0)],
              rackup: WORK, path: "/post", mode: "post"),
          row("post-chunked", "POST 1 KB chunked, c=100", [Bar.at_least(:rps, 4.0)],
              rackup: WORK, path: "/post", mode: "post_chunked"),
          row("close", "one request per connection, c=100", [Bar.at_least(:rps, 3.0)], mode: "close")
        ]
      end

      def responses
        [
          row("big-string", "3 MB response from one String, c=10", [Bar.at_least(:rps, 1.2)],
              rackup: WORK, path: "/big", connections: 10),
          row("big-file", "3 MB response from a file (to_path), c=10", [Bar.at_least(:rps, 2.0)],
              rackup: WORK, path: "/file", connections: 10),
          row("stream", "streamed response of 1000 chunks, c=10, 5 threads", [Bar.at_least(:rps, 5.0)],
              rackup: WORK, path: "/stream", connections: 10)
        ]
      end

      def workers
        Case.new(name: "workers", title: "hello, c=100, 2 workers of 5 threads", rackup: HELLO, path: "/",
                 connections: 100, seconds: 2, bars: [Bar.at_least(:rps, 2.5)],
                 servers: [Chaton.new(threads: "5:5", workers: 2), Puma.new(threads: "5:5", workers: 2)])
      end

      # Three of four workers are busy all the time (https://github.com/puma/puma/issues/3961).
      def balance
        Case.new(name: "balance", title: "hello, c=1, one request per connection, beside 3 clients that wait 300 ms; " \
                                         "4 workers of 1 thread",
                 rackup: WORK, path: "/", mode: "close", connections: 1, seconds: 5, warmup_s: 1,
                 beside: ["/sleep?0.3", 3, "close"],
                 bars: [Bar.at_most(:max_ms, 100.0, against: nil), Bar.at_most(:p99_ms, 20.0, against: nil)],
                 servers: [Chaton.new(threads: "1:1", workers: 4), Puma.new(threads: "1:1", workers: 4)])
      end

      # The usual row: both servers have five threads, and Puma is measured pinned and unpinned.
      def row(name, title, bars, **given)
        Case.new(**{ name:, title:, bars:, rackup: HELLO, path: "/", connections: 100, seconds: 2,
                     servers: [Chaton.new(threads: "5:5"), *pumas("5:5")] }.merge(given))
      end

      def pumas(threads) = [Puma.new(threads:), Puma.new(threads:, core: PINNED_CORE)]
    end
  end
end

require_relative "cases/arena"
require_relative "cases/edge"
require_relative "cases/http2"
require_relative "cases/rails"
require_relative "cases/shares"
require_relative "cases/tls"
require_relative "cases/traces"
