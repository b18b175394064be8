# frozen_string_literal: true

require "test_helper"
require "io/wait"
require "stringio"
require "chaton/supervisor/worker_channel"
require "chaton/telemetry/log"
require "chaton/worker"
require "support/fake_workload"
require "support/http_client"

# A worker process around a fake workload: what it writes to the supervisor, and how it exits.
class WorkerUnitTest < Minitest::Test
  Plan = Struct.new(:hooks, :tag, :shutdown_timeout_s, :stdout_redirect, :roles, keyword_init: true) do
    def roles_of(_index) = roles
    def of_process(_roles) = self
  end
  WAIT_S = 10

  # Logs that it takes no more jobs.
  class QuietWorkload < FakeWorkload
    def quiet_intake
      @log.info("no more jobs")
    end
  end

  def setup
    @server = TCPServer.new("127.0.0.1", 0)
    @channel, @theirs = Chaton::Supervisor::WorkerChannel.pair
    @log_reader, @log_writer = IO.pipe
    @pid = nil
  end

  def teardown
    Process.kill("KILL", @pid) && Process.wait(@pid) if @pid
    [@server, @theirs, @log_reader, @log_writer, @channel].each { |one| one.close unless one.closed? }
  end

  Memory = Struct.new(:scoreboard, :in_flight_table, :batch_table, :death_table)

  class Scoreboard
    def initialize(io) = @io = io
    def write(_slot, **) = nil
    def note_orphaned(slot) = @io.puts("noted: #{slot} is orphaned")
  end

  def test_it_reports_ready_serves_and_exits
    start
    assert_equal [:ready], read_messages
    HttpClient.open(@server.addr[1]) { |client| assert_equal "hello", client.get("/").body }
    assert_predicate stop_with("TERM"), :success?
  end

  def test_pings_are_answered
    start
    read_messages
    @channel.ping
    assert_equal %i[rust ruby], read_messages
    stop_with("TERM")
  end

  def test_it_exits_when_the_supervisor_has_gone
    start
    read_messages
    @channel.close
    assert_predicate wait, :success?
    assert_match(/the supervisor has gone.*noted: 0 is orphaned/m, @log_reader.read_nonblock(4096))
  end

  def test_a_failed_boot_reports_its_reason
    start(on_worker_boot: [proc { raise "no database" }])
    assert_equal 1, wait.exitstatus
    @channel.read
    assert_match(/no database/, @channel.reason)
  end

  def test_a_script_error_is_a_failed_boot_too
    start(on_worker_boot: [proc { require "no_such_library_here" }])
    assert_equal 1, wait.exitstatus
    @channel.read
    assert_match(/no_such_library_here/, @channel.reason)
  end

  def test_int_from_the_terminal_is_ignored
    start
    read_messages
    Process.kill("INT", @pid)
    HttpClient.open(@server.addr[1]) { |client| assert_equal "hello", client.get("/").body }
    stop_with("TERM")
  end

  def test_tstp_stops_a_worker_from_taking_jobs
    start(roles: %i[web jobs])
    read_messages
    Process.kill("TSTP", @pid)
    assert @log_reader.wait_readable(WAIT_S)
    assert_match(/no more jobs/, @log_reader.read_nonblock(4096))
    HttpClient.open(@server.addr[1]) { |client| assert_equal "hello", client.get("/").body }
    assert_predicate stop_with("TERM"), :success?
  end

  def test_tstp_does_not_stop_a_worker_without_jobs
    start
    read_messages
    Process.kill("TSTP", @pid)
    HttpClient.open(@server.addr[1]) { |client| assert_equal "hello", client.get("/").body }
    assert_predicate stop_with("TERM"), :success?
  end

  def test_unfinished_work_is_given_up
    start(shutdown_timeout_s: 0.1, app: ->(_env) { sleep })
    read_messages
    client = TCPSocket.new("127.0.0.1", @server.addr[1])
    client.write("GET / HTTP/1.1\r\n\r\n")
    assert_predicate stop_with("TERM"), :success?
  ensure
    client.close
  end

  private

  def start(shutdown_timeout_s: 5, app: ->(_env) { [200, {}, ["hello"]] }, roles: [:web], **hooks)
    plan = Plan.new(hooks: hooks, shutdown_timeout_s: shutdown_timeout_s, roles: roles)
    log = Chaton::Telemetry::Log.new(io: @log_writer)
    context = Chaton::Worker::ForkContext.new(plan: plan, loaded: true, app: app, sockets: [@server], log: log,
                                              memory: Memory.new(Scoreboard.new(@log_writer)), workload: QuietWorkload)
    @pid = fork do
      @channel.close
      worker = Chaton::Worker.new(context, index: 0, scoreboard_slot: 0, generation: 0, channel: @theirs)
      exit!(worker.run)
    end
    @theirs.close
  end

  def read_messages
    assert @channel.io.wait_readable(WAIT_S), "the worker writes nothing"
    @channel.read
  end

  def stop_with(signal)
    Process.kill(signal, @pid)
    wait
  end

  def wait
    _pid, status = Process.wait2(@pid)
    @pid = nil
    status
  end
end
