# frozen_string_literal: true

require_relative "cli_case"
require "chaton/cli/status_report"
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

  def test_a_restart_that_is_waited_for
    states = [{ state: "running" }, { state: "done" }]
    @answers["status"] = -> { { ok: true, pid: 42, state: "running", uptime_s: 1e6, restart: states.shift } }
    assert_equal [0, "server 42 loads the new code\nall workers have the new code\n", ""], control("restart", "--wait")
    @answers["status"] = { ok: true, pid: 42, state: "running", uptime_s: 1e6,
                           restart: { state: "abandoned", reason: "it raised" } }
    assert_equal [1, "chaton: the restart was abandoned, the old code goes on serving: it raised\n"],
                 control("restart", "--wait").values_at(0, 2)
    @answers["status"] = { ok: true, pid: 42, state: "running", uptime_s: 0 }
    assert_match(/^server 42 has started again$/, control("restart", "--full", "--wait")[1])
    @answers["status"] = { ok: true, pid: 42, state: "stopping", uptime_s: 1e6 }
    assert_equal [1, "chaton: server 42 is stopping\n"], control("restart", "--wait").values_at(0, 2)
  end

  # The server is hardly older than the restart, and its answer comes late.
  def test_a_late_answer_is_not_taken_for_a_new_start
    started_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    @answers["status"] = lambda do
      uptime_s = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started_s
      sleep 0.2
      { ok: true, pid: 42, state: "running", uptime_s: uptime_s, restart: { state: "abandoned", reason: "it raised" } }
    end
    assert_equal 1, control("restart", "--wait").first
  end

  def test_two_servers_of_one_directory
    Dir.mkdir("tmp")
    sockets = %w[tmp/chaton.sock tmp/chaton-jobs.sock].map { |path| UNIXServer.new(path) }
    threads = sockets.map { |socket| Thread.new { loop { serve(socket.accept) } } }
    @answers["status"] = { ok: true, version: "1", pid: 42, state: "running", uptime_s: 1, listen: [] }
    assert_equal 2, chaton("status")[1].scan(/^chaton 1 /).size
    [%w[restart], %w[status --json], %w[top], %w[trace status]].each do |command|
      assert_equal [1, <<~TEXT], chaton(*command).values_at(0, 2)
        chaton: several servers run in this directory; name one of them:
          --control-socket tmp/chaton.sock
          --control-socket tmp/chaton-jobs.sock
      TEXT
    end
    assert_equal 0, chaton("restart", "--control-socket", "tmp/chaton-jobs.sock").first
    threads.first.kill.join
    sockets.first.close
    assert_match(/\Aserver 42 /, chaton("restart")[1], "the file of a server that was killed is left")
  ensure
    [*threads&.each(&:kill), *sockets].each { |one| one.is_a?(Thread) ? one.join : one.close }
  end

  def test_jobs_of_the_server_that_runs_here
    Dir.mkdir("tmp")
    server = UNIXServer.new("tmp/chaton.sock")
    thread = Thread.new { loop { serve(server.accept) } }
    assert_equal 0, chaton("jobs", "enqueue", "Note", "--store", "sqlite://storage/chaton_production.db").first
    @answers["status"] = { ok: true, pid: 42, environment: "production",
                           store: "sqlite://#{@root}/storage/chaton_production.db" }
    # A command leaves the environment's name to the application, here to the next command.
    stats = lambda do |*options|
      ENV.delete("RACK_ENV")
      chaton("jobs", "stats", "--json", *options)
    end
    assert_equal 1, JSON.parse(stats.call[1])["enqueued"]
    @answers["status"][:store] = "redis://***@127.0.0.1:1/0"
    assert_match(%r{\Achaton: the server here works on redis://\*\*\*@127.0.0.1:1/0, and the .* names sqlite},
                 stats.call[2])
    assert_match(/chaton_development.db \(environment development\)/, stats.call("-e", "development")[2])
  ensure
    thread&.kill&.join
    server&.close
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

  def test_status_of_a_server_that_is_not_ready
    why = "jobs is not ready: worker 1 cannot reach the job store; its last heartbeat was 7.2 s ago"
    @answers["status"] = {
      ok: true, version: "1", pid: 42, state: "running", ready: false, unready: [why], uptime_s: 1, listen: [],
      workers: [{ worker: 0, roles: %w[web], pid: 43, state: "ready", ready: true },
                { worker: 1, roles: %w[streams], pid: 44, state: "ready", ready: false }]
    }
    text = control("status")[1]
    assert_includes text, "  running, not ready  pid 42"
    assert_includes text, "\n#{why}\n"
    assert_match(/^ +1 +streams +44 +ready +no /, text)
  end

  def test_status_in_a_narrow_terminal
    rows = Array.new(2) do |number|
      { "worker" => number, "roles" => %w[web jobs], "pid" => 123_456, "state" => "ready", "ready" => true,
        "age_s" => 90_000, "connections" => 1, "queued" => 0, "running" => 1, "threads" => 32,
        "finished_total" => 1_234_567, "requests_total" => 1_234_567, "shed_total" => 0,
        "memory" => { "pss" => 247 << 20, "private" => 200 << 20, "shared" => 47 << 20, "recycles" => 0 } }
    end
    stats = %w[processed failed enqueued scheduled retries dead in_flight processes].to_h { |name| [name, 123_456] }
    status = { "version" => "1", "pid" => 42, "state" => "running", "uptime_s" => 1, "workers" => rows,
               "memory" => { "total" => 494 << 20, "limit_tree" => 1 << 30, "recycled_total" => 0, "hard_total" => 0 },
               "jobs" => { "store" => "sqlite:///srv/app/storage/chaton_production.db", "stats" => stats,
                           "queues" => [{ "name" => "default", "size" => 0, "latency_s" => 0.0 },
                                        { "name" => "low", "size" => 2, "latency_s" => 174.04, "paused" => true }] } }
    narrow = Chaton::CLI::StatusReport.new(status, columns: 80).to_s
    assert_operator narrow.lines(chomp: true).map(&:length).max, :<=, 80
    assert_match(/^worker +roles +pid +state +ready +up +queued +running +threads +memory$/, narrow)
    assert_includes narrow, "\nmemory: 494 MiB in all  1.0 GiB ceiling of all\n"
    assert_match(/^queue default: nothing waits\nqueue low: 2 waiting, the next for 174.0 s, paused$/, narrow)
    assert_match(/ recycled$/, Chaton::CLI::StatusReport.new(status).to_s)
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
      workload: { queue: { waiting: 0 }, pool: { threads: 3, running: 1 }, roles: %w[web jobs],
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
    line = client.gets or return
    @asked << JSON.parse(line)["command"]
    answer = @answers.fetch(@asked.last, { ok: true, pid: 42 })
    client.puts JSON.generate(answer.respond_to?(:call) ? answer.call : answer)
  ensure
    client.close
  end
end
