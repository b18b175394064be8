# frozen_string_literal: true

require_relative "cli_case"
require "json"
require "socket"

# The commands against a control socket that answers what a test wants.
class RemoteTest < CLICase
  def setup
    super
    @asked = []
    @answers = {}
    @server = UNIXServer.new("control.sock")
    @thread = Thread.new { loop { serve(@server.accept) } }
  end

  def teardown
    @thread.kill.join
    @server.close
    super
  end

  def test_actions
    { %w[stop] => "stop", %w[quiet] => "quiet", %w[restart] => "phased-restart", %w[restart --full] => "restart" }
      .each do |argv, command|
        status, out, errors = control(*argv)
        assert_equal [0, "", command], [status, errors, @asked.last]
        assert_match(/\Aserver 42 /, out)
      end
  end

  def test_a_refusal
    @answers["stop"] = { ok: false, error: "not now" }
    assert_equal [1, "", "chaton: not now\n"], control("stop")
  end

  def test_status_of_workers
    @answers["status"] = {
      ok: true, version: "1.2.3", pid: 42, mode: "cluster", state: "running", tag: "shop", environment: "production",
      uptime_s: 3725.2, listen: ["tcp://127.0.0.1:9292"], given_up: [{ worker: 1, reason: "it raised" }],
      workers: [{ worker: 0, roles: %w[web], pid: 43, state: "ready", ready: true, age_s: 61, generation: 0,
                  connections: 12_345 }]
    }
    text = control("status")[1]
    assert_includes text, "chaton 1.2.3  shop  production  running  pid 42  up 1h 2m"
    assert_match(/^ +0 +web +43 +ready +yes +1m 1s +0 +12,345 +- /, text)
    assert_includes text, "worker 1 is not started again: it raised"
    assert_equal 42, JSON.parse(control("status", "--json")[1])["pid"]
  end

  def test_status_with_jobs
    @answers["status"] = { ok: true, version: "1", pid: 42, state: "running", uptime_s: 1, listen: [],
                           store: "sqlite://jobs.db", workers: [{ worker: 0, roles: %w[jobs], pid: 43 }] }
    text = control("status")[1]
    assert_match(/^ +0 +jobs +43 /, text)
    assert_match(%r{^jobs at sqlite://jobs.db: processed 0  failed 0}, text)
    refute_match(/listening/, text)
    assert_equal 0, JSON.parse(control("status", "--json")[1]).dig("jobs", "stats", "dead")
    @answers["status"][:store] = "redis://127.0.0.1:1/0"
    assert_match(%r{^jobs at redis://127.0.0.1:1/0: .*cannot connect}, control("status")[1])
    assert_match(/^jobs at /, control("top")[1], "into a pipe it looks once")
  end

  def test_status_of_a_group_whose_topic_does_not_exist_yet
    @answers["status"] = { ok: true, version: "1", pid: 42, state: "running", uptime_s: 1, listen: [],
                           workers: [{ worker: 0, roles: %w[streams], pid: 43 }] }
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", <<~RUBY)
      streams do
        broker "log://#{@root}/log"
        topic "orders", "Tally", group: "tally"
      end
    RUBY
    text = control("status")[1]
    assert_match(/^group tally at log:\S+: waits for orders, which does not exist yet$/, text)
    group = JSON.parse(control("status", "--json")[1]).dig("streams", "groups").first
    assert_equal [[], ["orders"], 0, 0], group.values_at("topics", "missing_topics", "partitions", "lag")
    File.write("config/chaton.rb", "streams { broker }")
    assert_match(/^streams: \S/, control("status")[1], "without a place")
  end

  def test_status_of_one_process
    @answers["status"] = {
      ok: true, version: "1", pid: 42, state: "running", uptime_s: 0.4, listen: [],
      services: [{ name: "css", state: "running", pid: 44, age_s: 61, starts: 2 },
                 { name: "queue", state: "waiting", pid: nil, age_s: nil, starts: 1 }],
      service: { queue: { waiting: 0 }, pool: { threads: 3, running: 1 }, roles: %w[web jobs],
                 web: { connections: 2, accepted_total: 9, requests_total: 1043, responses_total: [0, 1037, 2, 0, 4],
                        shed_total: 1, refused_total: 2, late_total: 0 },
                 memory: { gc_minor_total: 30, gc_major_total: 2, gc_inside_ns: 1_260_000, eden_bytes: 32 << 20,
                           eden_reason: "steady", gc_share_ppm: 41_000 },
                 jobs: { processed: 5, failed: 1, running: 0, quiet: false },
                 running: [{ what: "GET /slow", age_ms: 1200, thread: "chaton-1" }] }
    }
    text = control("status")[1]
    assert_includes text, "up 0s"
    assert_includes text, <<~TEXT
      service css: running  pid 44  up 1m 1s  started 2 times
      service queue: waiting  started once
      requests: 1,043 so far; answers 2xx 1,037, 3xx 2, 5xx 4; 3 turned away
      connections: 2 open, 9 accepted so far
      queue: nothing waits
      threads: 3, of which 1 run work
      garbage: collected 32 times, 2 of them in full; 1.3 ms of it while work ran
      eden: 32 MiB between two collections (steady); they take 4.1 % of the work's CPU time
      jobs of this process: 5 done, 1 failed, 0 running
    TEXT
    assert_includes text, "running: GET /slow  1,200 ms  thread chaton-1"
  end

  private

  def control(*argv) = chaton(*argv, "--control-socket", "control.sock")

  def serve(client)
    @asked << JSON.parse(client.gets)["command"]
    client.puts JSON.generate(@answers.fetch(@asked.last, { ok: true, pid: 42 }))
  ensure
    client.close
  end
end
