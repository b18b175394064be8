# frozen_string_literal: true

require "json"
require "uri"
require "support/server"
require "support/tls_files"
require_relative "attempt"

module Crossings
  # A server for cases that share its configuration.
  class Site
    # Requests that wait at their gates at a time.
    WAVE = 24
    # Cases that run at a time.
    SIDE_BY_SIDE = 12
    RACKUP = "require #{File.expand_path("application", __dir__).inspect}\nrun Crossings::Application.new".freeze

    attr_reader :stages, :tls

    # @param compress [String] on or off
    def initialize(compress)
      @compress = compress
      @dir = Dir.mktmpdir("chaton-crossings")
      @files = TlsFiles.new(File.join(@dir, "tls"))
      @files.write("app")
      # A context is frozen by its first connection.
      @tls = @files.method(:context)
      @stages = Stages.new(File.join(@dir, "stage"))
      @failures = {}
    end

    def port(version)
      @ports[{ "https" => 1, "h2" => 1, "proxy1" => 2, "proxy2" => 2 }.fetch(version, 0)]
    end

    # @param cases [Hash{Integer => Case}] by id
    # @return [Hash{Case => Array<String>}] what is wrong with those that fail
    def run(cases)
      attempts = cases.map { |id, one| Attempt.new(id, one, self) }.group_by { |attempt| attempt.one.restart }
      attempts.default = []
      serve(attempts["none"] + attempts["phased"]) do
        run_side_by_side(attempts["none"])
        attempts["phased"].each_slice(WAVE).with_index(1) { |wave, count| run_wave(wave) { restart(count) } }
        check_metrics
        @server.signal("TERM")
      end
      attempts["stop"].each_slice(WAVE) { |wave| serve(wave) { run_wave(wave) { stop } } }
      @failures
    end

    def close
      @stages.shut
      FileUtils.remove_entry(@dir)
    end

    private

    def serve(attempts)
      @server = Server.new(rackup: RACKUP, config: config, env: { "CROSSINGS_STAGE" => File.join(@dir, "stage") })
      TEXTS.each { |size, text| @server.write("#{size}.txt", text) }
      @server.start.ready
      @ports = @server.status["listen"].map { |address| URI(address).port }
      yield
      status = @server.wait_exit
      check_log(attempts)
      raise "the server ended with #{status}" unless status.zero?
      ended = true
    ensure
      @server.close(keep: !ended || attempts.any? { |attempt| @failures.key?(attempt.one) })
    end

    def config
      <<~RUBY
        bind "tcp://127.0.0.1:0"
        bind "https://127.0.0.1:0", **#{@files.pair("app").inspect}
        bind "tcp://#{Connection::BALANCED}:0?proxy_protocol=on"
        workers 1
        threads 32
        web do
          compress #{@compress == "on"}
          access_log :json
        end
        admin { bind "unix://#{@dir}/admin.sock" }
      RUBY
    end

    def run_side_by_side(attempts)
      left = attempts.dup
      threads = Array.new(SIDE_BY_SIDE) do
        Thread.new do
          while (attempt = left.shift)
            note(attempt, attempt.run)
          end
        end
      end
      threads.each(&:join)
    end

    # All wait at their gates until the block has begun the restart.
    def run_wave(attempts)
      arrived = Queue.new
      gate = Queue.new
      threads = attempts.map do |attempt|
        Thread.new do
          problems = attempt.run do |stage|
            stage.wait(attempt.one.gate)
            arrived << true
            gate.pop
          end
          # One that has failed before its gate must not keep the others waiting.
          arrived << true
          note(attempt, problems)
        end
      end
      attempts.size.times { arrived.pop }
      yield
      gate.close
      threads.each(&:join)
    end

    # Returns when the old worker drains.
    def restart(count)
      @server.wait_line(/phased restart done/, count: count - 1) if count > 1
      @server.signal("USR1")
      @server.wait_line(/worker ready/, count: count + 1)
      @server.eventually("the old worker drains") do
        workers = @server.status["workers"]
        workers.size > 1 && !workers.min_by { |worker| worker["generation"] }["accepting"]
      end
    end

    # Returns when nobody accepts any more.
    def stop
      @server.signal("TERM")
      @server.eventually("the sockets are closed") do
        TCPSocket.new("127.0.0.1", port("http11")).close
      rescue Errno::ECONNREFUSED
        true
      end
    end

    def note(attempt, problems)
      (@failures[attempt.one] ||= []).concat(problems) unless problems.empty?
    end

    # Each request has one line in the access log.
    def check_log(attempts)
      lines = @server.log.lines.grep(/"target":/).map { |line| JSON.parse(line[/\{.*/]) }
      by_target = lines.group_by { |line| line["target"] }
      attempts.each do |attempt|
        found = by_target.fetch(attempt.target, []).map { |line| line["status"] }
        wanted = [attempt.verdict.logged].compact
        note(attempt, found == wanted ? [] : ["the access log has #{found}, not #{wanted}"])
      end
    end

    # What is logged is counted.
    def check_metrics
      @server.eventually("the access log and the metrics agree") do
        logged = @server.log.scan(/"target":.*"status":(\d)/).flatten.tally
        counted = metrics.scan(/^chaton_responses_total\{class="(\d)xx"\} (\d+)/).to_h
        counted.transform_values(&:to_i).reject { |_, count| count.zero? } == logged
      end
    end

    def metrics
      UNIXSocket.open(File.join(@dir, "admin.sock")) do |socket|
        socket.write("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        socket.read
      end
    end
  end
end
