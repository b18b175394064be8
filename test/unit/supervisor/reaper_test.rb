# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/preloader"
require "chaton/supervisor/reaper"
require_relative "fakes"

class ReaperTest < Minitest::Test
  include SupervisorFakes

  # Reports one process with each call, as a preloader whose message comes while another death is handled.
  class SlowForkers
    def initialize(reports) = @reports = reports

    def read_all
      child, pid = @reports.shift
      child&.forked(pid, Chaton::Supervisor::EventLoop.now_s)
    end

    def ended(*) = false
    def pids = []
  end

  # A service, say.
  class Others
    attr_reader :pids

    def initialize(*pids) = @pids = pids
    def ended(pid, _how) = !@pids.delete(pid).nil?
  end

  def test_a_worker_that_is_reported_while_others_are_reaped_is_known
    build_worker_set(workers: 2)
    children = @worker_set.children.dup
    reaper(SlowForkers.new(children.zip(dead_processes(2)))).call
    assert_empty @worker_set.children
    assert(children.all?(&:dead?))
    assert_equal 2, @worker_set.exits.fetch(:boot)
  end

  # Before Ruby 3.3 such a thread hides dead children from a wait for any of them.
  def test_dead_processes_are_found_while_a_thread_waits_for_another_process
    other = spawn("sleep", "60")
    waiter = Process.detach(other)
    Thread.pass until waiter.stop?
    test_a_worker_that_is_reported_while_others_are_reaped_is_known
    service = Others.new(*dead_processes(1))
    reaper(SlowForkers.new([]), service).call
    assert_empty service.pids
  ensure
    Process.kill("KILL", other)
    waiter.join
  end

  def test_a_worker_that_somebody_else_has_reaped_is_ended_when_it_is_to_be_killed
    build_worker_set(workers: 1)
    child = @worker_set.children.first
    pid = dead_processes(1).first
    Process.wait(pid)
    child.forked(pid, Chaton::Supervisor::EventLoop.now_s)
    tick(11)
    assert_predicate child, :dead?
    assert_match(/did not become ready/, @output.string)
    tick(13)
    assert_equal 1, @worker_set.children.size
  end

  # The processes that it has forked are alive.
  def test_the_last_reports_of_a_dead_preloader_count
    build_worker_set(workers: 1)
    preloader, theirs = preloader_of(pid: 4_000_000)
    child = @worker_set.start_successor(@worker_set.worker_slots.first, preloader)
    theirs.sendmsg(JSON.generate({ forked: 1, pid: 4_000_001 }))
    assert preloader.ended(4_000_000, "killed by SIGKILL")
    assert_equal [:booting, 4_000_001], [child.state, child.pid]
  end

  private

  def reaper(forkers, services = Others.new)
    Chaton::Supervisor::Reaper.new(@worker_set, forkers, services, Others.new)
  end

  # A process can be waited for when its last thread has ended, which may be later than its first.
  #
  # @return [Array<Integer>] processes that have ended and are not reaped
  def dead_processes(count)
    pids = Array.new(count) { fork { exit!(7) } }
    Timeout.timeout(10) { Thread.pass until pids.all? { |pid| dead?(pid) } }
    pids
  end

  def dead?(pid)
    Dir.children("/proc/#{pid}/task").one? && File.read("/proc/#{pid}/stat").include?(") Z ")
  end

  # @return [Array(Preloader, UNIXSocket)] one that is loaded, and its process's end of the socket
  def preloader_of(pid:)
    theirs = nil
    launch = Object.new
    launch.define_singleton_method(:spawn) { |_sockets, ios:, **| (theirs = ios.first.dup) && pid }
    preloader = Chaton::Supervisor::Preloader.new(launch, generation: 1, sockets: {}, load_timeout_s: 5, log: @log,
                                                          memory: Struct.new(:descriptors).new({})) do |child, reason|
      @worker_set.fork_failed(child, reason)
    end
    preloader.start
    theirs.sendmsg(JSON.generate({ loaded: true, pool: nil }))
    preloader.readable
    [preloader, theirs]
  end
end
