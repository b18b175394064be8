# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/dashboard_case"

# A server with secrets in every setting that takes one: none of them is in an answer, a page, a log line or the
# output of a command.
class SecretsTest < Minitest::Test
  include DashboardCase

  # Stands in each secret.
  MARK = "hush"
  TOKEN = "#{MARK}-admin-token-0123456789".freeze
  BEARER = { "Authorization" => "Bearer #{TOKEN}" }.freeze
  PAGES = %w[/ /dashboard.css /dashboard.js /dashboard.json /metrics /live /ready /other].freeze
  LISTS = %w[dead retry scheduled queue:default].map { |place| "/jobs.json?place=#{place}" }.freeze
  COMMANDS = [%w[status], %w[status --json], %w[check], %w[check --json], %w[check --all], %w[jobs stats]].freeze
  # The job fails with a message of its own, and its argument is a secret.
  JOBS = <<~RUBY
    class Fails
      include Chaton::Job
      options retry: 1
      def perform(_secret) = raise(ArgumentError, "it fails")
    end
    class EventsConsumer < Chaton::Consumer
      def consume(batch) = batch.size
    end
  RUBY
  # Neither Kafka nor the collector of traces is there, so that errors about them are logged.
  CONFIG = <<~RUBY.freeze
    admin { bind "unix://admin.sock"; token #{TOKEN.dump} }
    traces do
      endpoint "http://127.0.0.1:1"
      headers "authorization" => "Bearer #{MARK}-traces"
      constants_for_tests traces_interval_s: 0.1
    end
    streams do
      broker "kafka://127.0.0.1:1"
      username "user"
      password "#{MARK}-broker"
      kafka "ssl.key.password" => "#{MARK}-property"
      topic "events", "EventsConsumer", group: "app"
    end
  RUBY

  def test_no_secret_is_shown
    @store = start_redis(password: "#{MARK}-redis").url
    server = launch_jobs(JOBS, config: CONFIG, workers: "web: 1, jobs: 1, streams: 1", rackup: Server::HELLO)
    server.wait_line(/ INFO  ready  /, timeout_s: WAIT_S)
    assert_equal 200, server.get("/path?token=#{MARK}-query").status
    console(server).run("Fails.perform_async(\"#{MARK}-argument\")")
    eventually_shown(server) { |shown| shown["jobs"]["store"]["sets"]["retries"] == 1 }
    key = server.control("dashboard")["url"][/\h{64}/]
    opened = page(server, "/open?key=#{key}")
    session = opened.headers["set-cookie"][/=(\h{64});/, 1]
    texts = { "opened" => opened.body, "backtraces" => post(server, "/actions/backtraces?worker=0").body }
    [{}, BEARER, { "Cookie" => opened.headers["set-cookie"][/\A[^;]+/] }].each_with_index do |headers, index|
      (PAGES + LISTS).each { |path| texts["#{path} #{index}"] = page(server, path, headers: headers).to_a.to_s }
    end
    COMMANDS.each do |words|
      *output, status = run_cli(server, *words)
      assert_equal 0, status, [words, *output].join("\n")
      texts[words.join(" ")] = output.join
    end
    pids = [server.pid, server.status["admin"]["pid"], *server.workers]
    texts["the arguments of processes"] = pids.map { |pid| File.read("/proc/#{pid}/cmdline") }.join
    assert_equal 200, post(server, "/actions/phased-restart").status
    server.wait_line(/phased restart/i, timeout_s: WAIT_S)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
    texts["the log"] = server.log
    texts.each do |name, text|
      refute_match(/#{MARK}|#{key}|#{session}/, text, "a secret is in #{name}")
      refute_empty text, name
    end
  end

  private

  def document(server) = page(server, "/dashboard.json", headers: BEARER).json

  def post(server, path) = page(server, path, method: "POST", headers: BEARER)
end
