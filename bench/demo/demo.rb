# frozen_string_literal: true

require_relative "../peers/chaton"
require_relative "../peers/puma"
require_relative "../support/machine"
require_relative "orders"
require_relative "progress"
require_relative "table"
require_relative "traffic"

module Bench
  # What bin/demo shows: the example application under load, in Chaton and in Puma; requests that leave background jobs,
  # and the jobs done on the embedded store; then Chaton left running.
  class Demo
    EXAMPLE = File.expand_path("../../examples/all_in_one", __dir__)
    RACKUP = File.join(EXAMPLE, "config.ru")
    CONFIG = File.join(EXAMPLE, "config/chaton.rb")
    PORT = 9292
    # Name, path, connections.
    LOADS = [["hello", "/hello", 100], ["sleep 0.1 s", "/sleep?s=0.1", 100], ["stream 100 lines", "/stream", 10]].freeze
    SECONDS = 4

    # @param once [Boolean] whether to end after the table
    def initialize(once:)
      @once = once
      @servers = [Chaton.new(config: CONFIG), puma].compact
    end

    # @return [void]
    def run
      start
      puts "", Table.new(measure).to_s, ""
      puts Orders.new(@servers.first).run.to_s, ""
      return puts("Done.") if @once
      puts "Chaton goes on at #{@servers.first.url("/")}  (process #{@servers.first.pid}; Ctrl-C ends it)"
      wait_for_interrupt
    rescue Interrupt
      puts "", "Ending."
    ensure
      @servers.each(&:stop)
    end

    private

    # Both with what they come with: nothing is tuned for either.
    def puma
      return Puma.new if Machine.installed?("puma")
      puts "Puma is not installed, so there is nothing to compare with."
    end

    def start
      @servers.each do |server|
        server.start(RACKUP, port: server.chaton? && free?(PORT) ? PORT : 0)
        puts "#{server.label} serves examples/all_in_one at #{server.url("/")}"
      end
      puts ""
    end

    def free?(port)
      TCPServer.open("127.0.0.1", port).close
      true
    rescue Errno::EADDRINUSE
      puts "Port #{port} is taken, so another one is used."
      false
    end

    # @return [Array<Hash>] one row for each load and server
    def measure
      LOADS.flat_map do |name, path, connections|
        @servers.map do |server|
          progress = Progress.new("#{name}, #{connections} connections, #{server.label}", server.tree, SECONDS)
          traffic = Traffic.new(server, path, connections:, seconds: SECONDS)
          { load: "#{name}, c=#{connections}", server: server.label, **progress.during { traffic.run } }
        end
      end
    end

    # Returns by an Interrupt, or because the server is gone.
    def wait_for_interrupt
      abort "Chaton ended by itself: #{@servers.first.wait}"
    end
  end
end
