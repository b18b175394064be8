# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/job_recovery"
require_relative "fakes"

class RecoveryTest < Minitest::Test
  include SupervisorFakes

  # What workers noted before they died.
  class FakeInFlightTable
    attr_reader :cleared, :kept

    def initialize
      @notes = {}
      @cleared = []
      @kept = []
    end

    def keep(scoreboard_slot) = @kept << scoreboard_slot

    def write(scoreboard_slot, identity, *tickets)
      @notes[scoreboard_slot] = [identity, tickets.map { |ticket| [ticket, "jid#{ticket}", 0] }]
    end

    def identity(scoreboard_slot) = @notes.dig(scoreboard_slot, 0)
    def started(scoreboard_slot) = @notes.dig(scoreboard_slot, 1) || []

    def clear(scoreboard_slot)
      @notes.delete(scoreboard_slot)
      @cleared << scoreboard_slot
    end
  end

  def setup
    @in_flight_table = FakeInFlightTable.new
  end

  def build(*roles)
    recovery = ->(log) { Chaton::Supervisor::JobRecovery.new(@in_flight_table, log: log) }
    build_worker_set(workers: roles.size, roles: roles, job_recovery: recovery)
    @children = @worker_set.children.dup
  end

  def die(child, status: killed)
    child.define_singleton_method(:pid) { 77 }
    assert @worker_set.ended(77, status)
  end

  # The status of a process that a signal ended.
  def killed
    pid = fork { sleep }
    Process.kill("KILL", pid)
    Process.wait2(pid).last
  end

  def exited(status) = Process.wait2(fork { exit!(status) }).last

  # Lines that a child has been sent.
  def heard(child)
    theirs = all_asked.find { |one, _| one.equal?(child) }.last
    text = theirs.read_nonblock(100_000, exception: false)
    return [] if text == :wait_readable

    text.lines.map { |line| JSON.parse(line.delete_prefix("R"), symbolize_names: true) }
  end

  def test_a_living_worker_gets_the_jobs_at_once
    build([:web], [:jobs], [:jobs])
    @children.each { |child| make_ready(child) }
    @in_flight_table.write(@children[1].scoreboard_slot, "h:1:n", 4, 9)
    die(@children[1])
    assert_equal [{ identity: "h:1:n", cause: "SIGKILL", tickets: [4, 9] }], heard(@children[2])
    assert_empty heard(@children[0]), "it has no connection to the store"
    assert_equal [@children[1].scoreboard_slot], @in_flight_table.cleared
  end

  def test_without_a_living_worker_the_replacement_gets_the_jobs
    build([:jobs])
    make_ready(@children[0])
    @in_flight_table.write(@children[0].scoreboard_slot, "h:1:n")
    die(@children[0], status: exited(3))
    tick
    successor = @worker_set.children.first
    assert_empty heard(successor)
    make_ready(successor)
    assert_equal [{ identity: "h:1:n", cause: "exit 3", tickets: [] }], heard(successor)
  end

  def test_jobs_sent_to_a_worker_that_dies_are_sent_again
    build([:jobs], [:jobs], [:jobs])
    @children.each { |child| make_ready(child) }
    @in_flight_table.write(@children[0].scoreboard_slot, "first", 1)
    die(@children[0])
    assert_equal %w[first], heard(@children[1]).map { |line| line[:identity] }
    @in_flight_table.write(@children[1].scoreboard_slot, "second", 2)
    die(@children[1])
    assert_equal %w[first second], heard(@children[2]).map { |line| line[:identity] }
  end

  def test_no_job_is_blamed_when_the_supervisor_stopped_the_worker
    build([:jobs], [:jobs], [:jobs])
    @children.each { |child| make_ready(child) }
    @in_flight_table.write(@children[0].scoreboard_slot, "stopped", 1)
    @in_flight_table.write(@children[1].scoreboard_slot, "killed", 2)
    @children[0].stop(0)
    die(@children[0])
    # It did not exit in time.
    @children[1].stop(0)
    @children[1].kill
    die(@children[1])
    assert_equal [nil, nil], heard(@children[2]).map { |line| line[:cause] }
  end

  def test_jobs_are_blamed_when_the_supervisor_ended_the_worker_for_what_they_do
    build([:jobs], [:jobs], [:jobs])
    @children.each { |child| make_ready(child) }
    @in_flight_table.write(@children[0].scoreboard_slot, "hangs", 1)
    @in_flight_table.write(@children[1].scoreboard_slot, "grows", 2)
    @children[0].kill
    die(@children[0])
    @worker_set.blame_work(@children[1], "memory (96 MiB)")
    assert_equal [@children[1].scoreboard_slot], @in_flight_table.kept
    # It was asked to stop and has done so.
    @children[1].stop_now(0)
    die(@children[1], status: exited(0))
    causes = heard(@children[2]).map { |line| line[:cause] }
    assert_match(/\Ano sign of life \(alive_timeout [\d.]+ s\)\z/, causes.first)
    assert_equal "memory (96 MiB)", causes.last
  end

  def test_a_child_that_never_took_jobs_leaves_nothing
    build([:web], [:jobs])
    make_ready(@children[1])
    die(@children[0])
    assert_empty @in_flight_table.cleared
    die(@children[1])
    tick
    make_ready(@worker_set.children.last)
    assert_empty heard(@worker_set.children.last)
  end

  def test_waiting_records_are_bounded
    build([:jobs])
    recovery = Chaton::Supervisor::JobRecovery.new(@in_flight_table, log: @log)
    300.times do |number|
      @in_flight_table.write(@children[0].scoreboard_slot, number.to_s,
                             *(number == 299 ? (1 << 63)...((1 << 63) + 9_000) : []))
      recovery.worker_ended(@children[0], nil, [])
    end
    make_ready(@children[0])
    Thread.new { recovery.deliver([@children[0]]) }.join
    theirs = all_asked.last.last
    text = +""
    until text.count("\n") == Chaton::Supervisor::JobRecovery::LINES_MAX
      text << theirs.readpartial(65_536)
      @children[0].channel.flush
    end
    lines = text.lines.map { |line| JSON.parse(line.delete_prefix("R")) }
    assert_equal %w[44 299], [lines.first["identity"], lines.last["identity"]]
    assert_operator text.lines.map(&:bytesize).max, :<=, 65_536
  end
end
