# frozen_string_literal: true

require "test_helper"
require "chaton"
require "chaton/config"
require "chaton/workload"
require "chaton/workload/code"
require "chaton/telemetry/log"
require "socket"
require "stringio"
require "support/http_client"
require "fileutils"
require "timeout"
require "tmpdir"

# The workload with the real engines, in this process: which engines its roles start, and how it gives jobs up.
class WorkloadTest < Minitest::Test
  WAIT_S = 10
  # The root of an application that loads nothing.
  ROOT = Dir.mktmpdir("chaton-workload").tap { |root| Minitest.after_run { FileUtils.remove_entry(root) } }

  # Reports that it runs, and waits until the gate opens.
  class GateJob
    include Chaton::Job

    class << self
      attr_accessor :began, :gate, :ended
    end

    def perform(_number)
      self.class.began << Thread.current
      self.class.gate.pop
      self.class.ended << :done
    rescue Chaton::Jobs::Shutdown
      self.class.ended << :interrupted
      raise
    end
  end

  def setup
    GateJob.began, GateJob.gate, GateJob.ended = Array.new(3) { Queue.new }
    @output = StringIO.new
    @log = Chaton::Telemetry::Log.new(io: @output)
  end

  def teardown
    3.times { GateJob.gate << true }
    @workload&.stop(0) unless @stopped
    @server&.close
    Chaton::Jobs.stopping = false
    Chaton::Jobs.use(nil)
  end

  def test_jobs_alone_need_no_socket_and_no_application
    start([:jobs])
    GateJob.perform_async(1)
    GateJob.gate << true
    assert_equal :done, popped(GateJob.ended)
    assert_equal [[:jobs], true], @workload.status.then { |status| [status[:roles], status.key?(:jobs)] }
    refute @workload.status.key?(:web)
    assert stop(5)
  end

  def test_no_job_is_claimed_before_the_process_is_ready
    ready = lambda do
      GateJob.perform_async(1)
      assert_equal [true, 0], @workload.status.fetch(:jobs).values_at(:quiet, :claimed)
      assert_empty GateJob.began
    end
    start([:jobs], ready: ready)
    popped(GateJob.began)
    GateJob.gate << true
    assert_equal :done, popped(GateJob.ended)
    assert stop(5)
  end

  def test_jobs_whose_worker_is_ended_for_what_they_do_stay_in_flight
    start([:jobs])
    GateJob.perform_async(1)
    popped(GateJob.began)
    @table.keep(0)
    refute stop(0.05)
    assert_equal :interrupted, popped(GateJob.ended)
    assert_equal [0, 1], Chaton::Jobs::Stats.new.to_h.values_at(:enqueued, :in_flight)
    assert_equal 1, @table.started(0).size
  end

  def test_web_and_jobs_run_in_one_process
    start(%i[web jobs])
    GateJob.perform_async(1)
    popped(GateJob.began)
    HttpClient.open(@server.addr[1]) { |client| assert_equal "hello", client.get("/").body }
    GateJob.gate << true
    assert_equal :done, popped(GateJob.ended)
    assert stop(5)
  end

  def test_jobs_that_do_not_end_in_time_go_back_and_are_interrupted
    start([:jobs])
    jid = GateJob.perform_async(1)
    popped(GateJob.began)
    refute stop(0.05)
    assert_equal :interrupted, popped(GateJob.ended)
    waiting = Chaton::Jobs.client.native.list("queue:default", 0, 10)
    assert_equal [jid], waiting.map { |entry| JSON.parse(entry[2])["jid"] }
    refute_match(/retry_count|error/, waiting.first[2])
    assert_match(/still running at the end of the graceful stop.*GateJob jid=#{jid}/, @output.string)
    assert_match(/went back to the front of their queues/, @output.string)
  end

  # The job ends just before it is interrupted, and its thread would begin the waiting request.
  def test_an_interrupt_of_a_job_never_hits_the_request_that_follows
    gate = Queue.new
    start(%i[web jobs], threads: "1:1") { gate.pop }
    GateJob.perform_async(1)
    thread = popped(GateJob.began)
    end_job_before_interrupt(thread)
    client = Thread.new { HttpClient.open(@server.addr[1]) { |http| http.get("/").body } }
    eventually { @workload.status.dig(:queue, :waiting) == 1 }
    @workload.instance_variable_get(:@roles).fetch(:jobs).give_up
    gate << true
    assert_equal "hello", client.value
    refute_match(/ERROR/, @output.string)
  end

  # A request is not waited for after its answer has been sent.
  def test_a_stop_is_incomplete_when_a_thread_does_not_end
    gate = Queue.new
    began = Queue.new
    after = lambda do |*_|
      began << true
      gate.pop
    end
    start([:web]) { |env| env["rack.response_finished"] << after }
    HttpClient.open(@server.addr[1]) { |client| assert_equal "hello", client.get("/").body }
    popped(began)
    refute stop(5)
    refute_match(/still running/, @output.string)
  ensure
    gate << true
  end

  def test_a_quiet_service_takes_no_more_work_and_serves_on
    start(%i[web jobs])
    @workload.quiet_intake
    @workload.quiet_intake
    GateJob.perform_async(1)
    HttpClient.open(@server.addr[1]) { |client| assert_equal "hello", client.get("/").body }
    assert_equal 1, Chaton::Jobs.client.native.list("queue:default", 0, 10).size
    assert_predicate Chaton::Jobs, :stopping?
    assert_equal 1, @output.string.scan("no more jobs are taken").size
  end

  def test_only_the_role_jobs_recovers_the_jobs_of_a_dead_sibling
    start([:jobs])
    @workload.recover(JSON.generate({ identity: "h:1:n", cause: nil, tickets: [1] }))
    @workload.stop(1)
    @stopped = true
    start([:web])
    @workload.recover("{}")
    assert_match(/without the role jobs/, @output.string)
  end

  def test_signals_from_the_store_are_handled
    start([:jobs])
    signals = Chaton::Workload::StoreSignals.new(@workload, log: @log)
    signals.call("TTIN")
    assert_match(/thread at SIGTTIN/, @output.string)
    signals.call("HUP")
    assert_match(/means nothing here/, @output.string)
    signals.call("TSTP")
    assert_predicate Chaton::Jobs, :stopping?
    received = Queue.new
    before = trap("TERM") { received << true }
    signals.call("TERM")
    assert popped(received)
  ensure
    trap("TERM", before || "DEFAULT")
  end

  private

  # Defines that an exception raised in the thread comes when its job has ended and it runs or waits for something else.
  def end_job_before_interrupt(thread)
    test = self
    thread.define_singleton_method(:raise) do |*arguments|
      GateJob.gate << true
      test.popped(GateJob.ended)
      test.eventually { stop? }
      super(*arguments)
    end
  end

  def start(roles, threads: "1:3", ready: -> {}, &seen)
    @stopped = false
    plan = Chaton::Config.load({ config_file: "-", store: "sqlite://#{ROOT}/#{name}.db", web: roles.include?(:web),
                                 jobs: roles.include?(:jobs), threads: threads }, env: {}, root: ROOT)
    @server = TCPServer.new("127.0.0.1", 0) if roles.include?(:web)
    plan = plan.with(binds: [Chaton::Config::Bind.new(scheme: "tcp", host: "127.0.0.1", port: 0)]) if @server
    Chaton::Workload::Code.follow(plan, roles, log: @log)
    @table = Chaton::Native::InFlightTable.new(1, 8)
    context = Chaton::Workload::ProcessContext.new(roles: roles, scoreboard: Chaton::Native::Scoreboard.new(1), slot: 0,
                                                   in_flight_table: @table)
    @workload = Chaton::Workload.new(plan, app: app(seen), sockets: [@server].compact, context: context, log: @log)
    @workload.start(&ready)
  end

  def app(seen)
    lambda do |env|
      seen&.call(env)
      [200, {}, ["hello"]]
    end
  end

  def stop(deadline_s)
    @stopped = true
    @workload.stop(deadline_s)
  end

  public

  def popped(queue)
    Timeout.timeout(WAIT_S) { queue.pop }
  end

  def eventually
    Timeout.timeout(WAIT_S) { sleep 0.001 until yield }
  end
end
