# frozen_string_literal: true

require "json"
require_relative "../peers/chaton"
require_relative "../peers/puma"
require_relative "../support/gc_reading"
require_relative "../support/machine"
require_relative "../support/rss_sampler"
require_relative "clicks"
require_relative "https"
require_relative "memory_table"
require_relative "orders"
require_relative "progress"
require_relative "table"
require_relative "traffic"

module Bench
  # The program of bin/demo. It compares what happens to a Rails application in a deploy and a kill, beside Puma and
  # Sidekiq. It puts the example application under load, in Chaton and in Puma. Then it sends Chaton
  # requests that enqueue background jobs and requests that write to a stream, and leaves Chaton running.
  class Demo
    EXAMPLE = File.expand_path("../../examples/all_in_one", __dir__)
    # The example with a meter of its garbage collection.
    RACKUP = File.expand_path("metered.ru", __dir__)
    CONFIG = File.join(EXAMPLE, "config/chaton.rb")
    PORT = 9292
    # That of the metrics, as in examples/metrics.
    ADMIN_PORT = 9394
    # Name, path, connections.
    LOADS = [["hello", "/hello", 100], ["sleep 0.1 s", "/sleep?s=0.1", 100], ["stream 100 lines", "/stream", 10]].freeze
    SECONDS = 4
    # Both servers are idle for this time before their idle memory is read.
    IDLE_S = 5
    LINE_EVERY_S = 4
    # Without them the Rails application is not shown.
    PROGRAMS = %w[puma rails redis-server sidekiq wrk].freeze

    # @param once [Boolean] whether to end after the tables
    def initialize(once:)
      @once = once
      @https = Https.new
      @servers = [Chaton.new(config: CONFIG, binds: [@https.bind]), puma].compact
    end

    def run
      puts "A Rails application with jobs, deployed and killed:", "", rails, ""
      start
      before = @servers.map { |server| GcReading.of(server) }
      rows = measure
      puts "", Table.new(rows).to_s, ""
      puts "Memory and garbage collection over all loads:", "", MemoryTable.new(memory(rows, before)).to_s, ""
      puts with_progress("requests that enqueue background jobs") { Orders.new(@servers.first).run.to_s }, ""
      puts with_progress("requests that write to a stream") { Clicks.new(@servers.first).run.to_s }, ""
      puts "HTTPS with the certificate for development:", "", @https.visit("/hello"), ""
      @once ? puts("Done.") : keep_running
    rescue Interrupt
      puts "", "Stopping."
    ensure
      @servers.each(&:stop)
    end

    private

    # @return [String] what happens to a Rails application
    def rails
      missing = PROGRAMS.reject { |program| Machine.installed?(program) }
      return "The Rails application is not shown: install #{missing.join(", ")}." if missing.any?
      # It needs gems that come with these programs.
      require_relative "../rails/suite"
      require_relative "../rails/table"
      raw = Rails::Suite.measure(Rails::Suite.cases.first, quick: true, progress: ->(line) { puts "  #{line}" })
      "\n#{Rails::Table.new(JSON.parse(JSON.generate(raw)))}"
    end

    # Both servers have their defaults.
    def puma
      return Puma.new if Machine.installed?("puma")
      puts "Puma is not installed, so Chaton is shown alone."
    end

    def start
      # The example's configuration reads it.
      ENV["ADMIN_BIND"] ||= "tcp://127.0.0.1:#{free?(ADMIN_PORT) ? ADMIN_PORT : 0}"
      @servers.each do |server|
        server.start(RACKUP, port: server.chaton? && free?(PORT) ? PORT : 0, folder: EXAMPLE)
        puts "#{server.label} serves examples/all_in_one at #{server.url("/")}"
      end
      puts ""
    end

    def free?(port)
      TCPServer.open("127.0.0.1", port).close
      true
    rescue Errno::EADDRINUSE
      puts "Port #{port} is in use, so another one is used."
      false
    end

    # @return [Array<Hash>] one row for each load and server
    def measure
      LOADS.flat_map do |name, path, connections|
        @servers.map do |server|
          progress = Progress.new("#{name}, #{connections} connections, #{server.label}", server.tree, SECONDS)
          traffic = Traffic.new(server, path, connections:, seconds: SECONDS)
          sampler = RssSampler.new(server.tree)
          figures = sampler.during { progress.during { traffic.run } }
          { load: "#{name}, c=#{connections}", server: server.label, peak_mb: sampler.peak, **figures }
        end
      end
    end

    # @return [Array<Hash>] one row for each server, over all its loads
    def memory(rows, before)
      collected = @servers.zip(before).map { |server, reading| GcReading.between(reading, GcReading.of(server)) }
      with_progress("idle for #{IDLE_S} s") { sleep IDLE_S }
      @servers.zip(collected).map do |server, gc|
        peak_mb = rows.select { |row| row[:server] == server.label }.map { |row| row[:peak_mb] }.max
        { server: server.label, peak_mb:, idle_mb: server.tree.memory_mb, gc: }
      end
    end

    # Prints the title, and again every few seconds until the block ends.
    def with_progress(title)
      work = Thread.new { yield }
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      puts "  #{title}"
      until work.join(LINE_EVERY_S)
        puts format("  %s: %.0f s", title, Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)
      end
      work.value
    end

    # Returns after an Interrupt; aborts when the server ends.
    def keep_running
      puts "Chaton keeps running at #{@servers.first.url("/")} and #{@https.url("/")}  " \
           "(process #{@servers.first.pid}; Ctrl-C stops it)",
           "A text that goes on while you deploy and kill: #{@servers.first.url("/answer")}",
           "Metrics and traces: examples/metrics/README.md, examples/traces/README.md"
      abort "Chaton ended by itself: #{@servers.first.wait}"
    end
  end
end
