# frozen_string_literal: true

require "socket"
require_relative "cases"
require_relative "../support/bar"
require_relative "../support/case_run"

module Bench
  module Web
    # Long requests that arrive at once at a server that has just started, and short ones beside them.
    class Burst < Bench::CaseRun
      DELAYS_S = [1, 3, 6, 10, 30].freeze
      # Of --quick.
      QUICK_DELAYS_S = [1, 3].freeze
      SHORT_EVERY_S = 0.1
      CASES = [24, 60, 200].map do |count|
        Case.new(name: "burst-#{count}", kind: self, rackup: WORK, path: "/sleep", connections: count, rounds: 1,
                 title: "#{count} requests that wait 1, 3, 6, 10 and 30 s at once, cold, -t 1:512; / every 100 ms",
                 seconds: DELAYS_S.max,
                 servers: [Chaton.new(threads: "1:512"), Chaton.new(threads: "1:512", workers: 2),
                           Puma.new(threads: "512:512")],
                 bars: [Bar.at_most(:begin_ms, 100.0, against: nil), Bar.at_most(:late_ms, 200.0, against: nil),
                        Bar.at_most(:p99_ms, 20.0, against: nil)])
      end

      private

      def facts
        { path: @case.path, connections: @case.connections, delays_s:,
          commands: @case.servers.to_h { |server| [server.label, server.command_line(@case.rackup)] } }
      end

      def delays_s = @case.seconds < DELAYS_S.max ? QUICK_DELAYS_S : DELAYS_S

      # The worst burst counts: none may be late.
      def measure(server)
        bursts = delays_s.map { |delay_s| burst(server, delay_s) }
        worst = %i[begin_ms late_ms p99_ms cpu_us].to_h { |name| [name, bursts.map { |one| one[name] }.max] }
        { **worst, rps: bursts.map { |one| one[:rps] }.min, waits: 0.0, errors: bursts.sum { |one| one[:errors] },
                   bursts: }
      end

      def burst(server, delay_s)
        server.start(@case.rackup)
        done = false
        short = Thread.new { short_requests(server.port) { done } }
        before = server.tree.read
        long = long_requests(server.port, delay_s)
        cpu_s = server.tree.read.cpu_s_since(before)
        done = true
        figures(delay_s, long, short.value, cpu_s)
      ensure
        done = true
        server.stop
      end

      # @return [Array<Array(String, Float, Float)>] status, seconds until it began, and seconds until its response
      def long_requests(port, delay_s)
        sockets = Array.new(@case.connections) { TCPSocket.new("127.0.0.1", port) }
        sent = sockets.to_h { |socket| [socket, request(socket, "/sleep?#{delay_s}") && now] }
        waiting = sockets.dup
        results = []
        until waiting.empty?
          ready, = IO.select(waiting, nil, nil, (2 * delay_s) + 30)
          raise "no response within #{(2 * delay_s) + 30} s" unless ready
          ready.each do |socket|
            status, began = response(socket)
            results << [status, began - sent[socket], now - sent[socket]]
          end
          waiting -= ready
        end
        results
      ensure
        sockets&.each(&:close)
      end

      # @return [Array<Array(String, Float)>] status and seconds until the response
      def short_requests(port)
        results = []
        until yield
          TCPSocket.open("127.0.0.1", port) do |socket|
            from = now
            request(socket, "/")
            results << [response(socket).first, now - from]
          end
          sleep SHORT_EVERY_S
        end
        results
      end

      def request(socket, path)
        socket.write("GET #{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
      end

      # The body says when the application began.
      def response(socket)
        text = socket.read
        [text[9, 3], text.split("\r\n\r\n", 2).last.to_f]
      end

      def figures(delay_s, long, short, cpu_s)
        latencies = short.map(&:last).sort
        { delay_s:, rps: (long.size / long.map(&:last).max).round(1),
          begin_ms: milliseconds(long.map { |_, began, _| began }.max),
          late_ms: milliseconds(long.map(&:last).max - delay_s),
          p99_ms: milliseconds(latencies[(latencies.size * 0.99).ceil - 1]), cpu_us: (cpu_s * 1e6 / long.size).round,
          errors: (long + short).count { |status, *| status != "200" } }
      end

      def milliseconds(seconds) = (seconds * 1000).round(1)
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
