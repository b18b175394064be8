# frozen_string_literal: true

require "net/http"
require_relative "../support/case_run"
require_relative "../support/numbers"
require_relative "clients"
require_relative "servers"

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

      private

      def facts = { commands: @case.servers.to_h { |server| [server.label, server.command_line] } }

      def measure(server)
        server.start
        say(server, "1&1&0") # Whatever the first message loads.
        before = server.tree.memory_mb[:pss_mb]
        clients = Clients.new(server.port, @case.connections, @case.topics)
        send(@case.kind, server, clients, before)
      ensure
        clients&.close
        server.stop
      end

      def idle(server, clients, before)
        clients.read(settle_s: 3)
        figures = { grown_mb: (server.tree.memory_mb[:pss_mb] - before).round(1) }
        reading = server.tree.read
        sleep IDLE_S
        { **figures, idle_waits: server.tree.read.waits_since(reading),
                     threads: Dir.children("/proc/#{server.pid}/task").size, **clients.read.slice(:open) }
      end

      def fan_out(server, clients, _before)
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

      def each(server, clients, _before)
        say(server, "#{@case.rate * @case.seconds}&#{@case.topics}&#{@case.rate}")
        clients.read.slice(:messages, :p50_ms, :p99_ms, :max_ms, :missed, :gaps)
      end

      # A worker is killed again and again, and all are replaced some times, while messages go on.
      def kills(server, clients, _before)
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

      # @return [Integer] process id
      def worker(server)
        Integer(get(server, "/"))
      rescue SystemCallError, IOError
        retry
      end

      def say(server, query) = get(server, "/say?#{query}")

      def get(server, path)
        Net::HTTP.start("127.0.0.1", server.port, read_timeout: 120) { |http| http.get(path).body }
      end
    end
  end
end
