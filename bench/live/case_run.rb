# frozen_string_literal: true

require "net/http"
require_relative "../support/case_run"
require_relative "../support/numbers"
require_relative "../support/open_loop"
require_relative "../support/wrk"
require_relative "clients"
require_relative "servers"
require_relative "tls_clients"

module Bench
  module Live
    # Opens the clients of a case, and measures what becomes of them.
    class CaseRun < Bench::CaseRun
      IDLE_S = 10
      # Single messages to all clients.
      SINGLE = 10
      # Messages at once to all clients.
      BURST = 50
      KILL_EVERY_S = 5
      RESTARTS = 3
      # Requests a second beside clients that come back.
      HELLO_RATE = 200
      # What a server that has closed thousands of connections still does.
      CLOSED_S = 3

      private

      # It is built once, and not while clients come back.
      def open = (OpenLoop.program if @case.kind == :back)

      def facts = { commands: @case.servers.to_h { |server| [server.label, server.command_line] } }

      def measure(server)
        server.start
        say(server, "1&1&0") # Whatever the first message loads.
        send(@case.kind, server)
      ensure
        @clients&.close
        server.stop
      end

      def connect(server, **options)
        place = [server.port, @case.connections]
        @clients = server.tls? ? TlsClients.new(*place) : Clients.new(*place, @case.topics, **options)
      end

      def idle(server)
        before = server.tree.memory_mb[:pss_mb]
        clients = connect(server)
        clients.read(settle_s: [3, @case.warmup_s].max)
        grown_mb = (server.tree.memory_mb[:pss_mb] - before).round(1)
        reading = server.tree.read
        sleep(@case.seconds || IDLE_S)
        { grown_mb:, waiting_kb: (grown_mb * 1024 / @case.connections).round(1),
          idle_waits: server.tree.read.waits_since(reading),
          threads: Dir.children("/proc/#{server.pid}/task").size, **clients.read(settle_s: 0).slice(:open) }
      end

      def fan_out(server, clients = connect(server))
        spreads = Array.new(SINGLE) do
          say(server, "1&1&0")
          clients.read.then { |seen| [seen[:spread_ms], seen[:max_ms]] }
        end
        say(server, "#{BURST}&1&0")
        # A server that is slow takes its time.
        all = clients.read(settle_s: 15)
        { spread_ms: Bench.median(spreads.map(&:first)).round(1), max_ms: Bench.median(spreads.map(&:last)).round(1),
          deliveries: (all[:messages] / all[:spread_ms] * 1000).round, **all.slice(:messages, :missed, :gaps) }
      end

      def peers(server) = idle(server).merge(fan_out(server, @clients))

      def each(server)
        clients = connect(server)
        say(server, "#{@case.rate * @case.seconds}&#{@case.topics}&#{@case.rate}")
        clients.read.slice(:messages, :p50_ms, :p99_ms, :max_ms, :missed, :gaps)
      end

      # A worker is killed again and again, and all are replaced some times, while messages go on.
      def kills(server)
        clients = connect(server)
        said = server.say_beside("#{@case.rate * @case.seconds}&#{@case.topics}&#{@case.rate}")
        kills = 0
        (@case.seconds / KILL_EVERY_S).times do |at|
          sleep KILL_EVERY_S
          next Process.kill(:USR1, server.pid) if ((at + 1) % (@case.seconds / KILL_EVERY_S / RESTARTS)).zero?

          Process.kill(:KILL, worker(server))
          kills += 1
        end
        said.join
        seen = clients.read(settle_s: 5)
        expected = @case.rate * @case.seconds * (@case.connections / @case.topics)
        { kills:, unreceived: (expected - seen[:messages]).to_i, expected:,
          **seen.slice(:repeated, :missed, :gaps, :lost_connections, :back_p50_ms, :back_p99_ms, :back_max_ms, :refused,
                       :p50_ms, :p99_ms) }
      end

      # One of two workers is killed, and its clients come back.
      def back(server)
        clients = connect(server, stale: @case.mode == "stale")
        clients.read
        Process.kill(:KILL, worker(server))
        hello = OpenLoop.new(server.url("/"), rate: HELLO_RATE, seconds: @case.seconds).run
        seen = clients.read(settle_s: 5)
        figures = { cut: hello[:errors].values.sum, unreturned: @case.connections - seen[:open].to_i }
        figures.merge(hello.slice(:p50_ms, :p99_ms, :max_ms, :offered, :errors),
                      seen.slice(:lost_connections, :back_p50_ms, :back_p99_ms, :back_max_ms, :refused))
      end

      # The same load before, while, and after there are clients, so that another machine's minute does not count.
      def beside(server)
        load = -> { Wrk.new(server.url("/"), connections: 100, seconds: @case.seconds).run.rps }
        load.call
        before = load.call
        clients = connect(server)
        clients.read
        beside = load.call
        open = clients.read(settle_s: 0)[:open]
        clients.close
        sleep CLOSED_S
        alone = (before + load.call) / 2
        { alone_rps: alone.round, beside_rps: beside.round, kept: (beside / alone).round(3), open: }
      end

      # @return [Integer] process id
      def worker(server)
        Integer(get(server, "/"))
      rescue SystemCallError, IOError
        retry
      end

      def say(server, query) = get(server, "/say?#{query}")

      def get(server, path)
        http = Net::HTTP.new("127.0.0.1", server.port)
        http.use_ssl = server.tls?
        http.verify_mode = OpenSSL::SSL::VERIFY_NONE
        http.read_timeout = 120
        http.start { http.get(path).body }
      end
    end
  end
end
