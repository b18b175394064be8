# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Kills of workers, of the supervisor and of all processes while jobs run: no job is lost, and only jobs that were in
# flight run twice.
class JobsKillTest < Minitest::Test
  include JobsTest

  JOBS = SLOW_NOTE + <<~RUBY
    class Long
      include Chaton::Job
      def perform(id, seconds)
        Recorder.note(id, "began")
        sleep seconds
        Recorder.note(id, "ended")
      end
    end
  RUBY
  COUNT = Soak.number(6_000, 20_000)
  KILLS = Soak.number(6, 20)
  # Kills of the whole process tree, after each of which the test waits for a boot.
  ROUNDS = Soak.number(2, 3)
  # The promise is about one second; the machine may be busy.
  RECOVERY_S = 10

  def time_limit_s = 180

  every_store def test_killed_workers_lose_no_job
    server, console = crowd
    at_risk = 0
    KILLS.times do |round|
      progress(server, (round + 1) * COUNT / (KILLS + 2))
      at_risk += kill_one(server, console, round)
    end
    assert_none_lost(server, console, at_risk)
    assert_equal KILLS, server.log.scan("ERROR worker died").size
    assert_equal 0, server.stop
  end

  every_store def test_killed_supervisors_lose_no_job
    server, console = crowd
    at_risk = 0
    ROUNDS.times do |round|
      progress(server, (round + 1) * COUNT / (ROUNDS + 2))
      pids = server.workers
      server.signal("KILL")
      server.wait_exit
      # Its workers finish their running jobs when they notice.
      server.wait_all_gone
      assert(pids.none? { |pid| server.alive?(pid) })
      at_risk += stats(console)["in_flight"]
      server.start.ready
    end
    assert_none_lost(server, console, at_risk)
    assert_equal 0, server.stop
  end

  every_store def test_a_killed_process_tree_loses_no_job
    server, console = crowd
    at_risk = 0
    ROUNDS.times do |round|
      progress(server, (round + 1) * COUNT / (ROUNDS + 2))
      server.kill_all
      at_risk += stats(console)["in_flight"]
      server.start.ready
    end
    assert_none_lost(server, console, at_risk)
    assert_equal 0, server.stop
  end

  every_store def test_a_sibling_reclaims_a_killed_workers_jobs_at_once
    server = boot_jobs(JOBS, workers: "jobs: 2", config: JobsServer::QUICK)
    assert_taken_over(server)
    assert_equal 0, server.stop
  end

  every_store def test_without_a_sibling_the_replacement_reclaims_the_jobs
    server = boot_jobs(JOBS, workers: "jobs: 1", config: JobsServer::QUICK)
    assert_taken_over(server)
    assert_equal 0, server.stop
  end

  # After a phased restart, workers are children of a preloader that the supervisor adopted.
  every_store def test_jobs_are_reclaimed_after_a_phased_restart
    server = boot_jobs(JOBS, workers: "jobs: 1", config: JobsServer::QUICK)
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    assert_taken_over(server)
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  every_store def test_the_next_boot_reclaims_the_jobs_of_a_killed_process_tree
    server = boot_jobs(JOBS, workers: "jobs: 1")
    console(server).run("Long.perform_async(\"long\", 1)")
    server.eventually("it runs") { server.record.count("began") == 1 }
    server.kill_all
    server.start.ready
    # The time of the boot does not count.
    begun_s = Recorder.now_s
    server.eventually("it runs again") { server.record.count("began") == 2 }
    assert_operator server.record.entries.last.at_s - begun_s, :<, RECOVERY_S
    server.eventually("it ends") { server.record.count("ended") == 1 }
    assert_equal 0, server.stop
  end

  private

  def crowd
    server = boot_jobs(JOBS, workers: "jobs: 2", threads: "4..8", config: JobsServer::QUICK)
    console = console(server)
    console.run("Note.perform_bulk((0...#{COUNT}).map { |n| [n] }); nil")
    [server, console]
  end

  def progress(server, count)
    server.eventually("#{count} jobs") { server.record.count >= count }
  end

  # Both processes are stopped meanwhile, so that the jobs in flight do not change.
  def kill_one(server, console, round)
    pids = server.eventually("two workers") { server.workers.then { |found| found if found.size == 2 } }
    pids.each { |pid| server.signal("STOP", pid) }
    in_flight = stats(console)["in_flight"]
    server.signal("KILL", pids[round % 2])
    server.signal("CONT", pids[1 - (round % 2)])
    in_flight
  end

  def assert_none_lost(server, console, at_risk)
    server.eventually("every job ran", timeout_s: 60) { server.record.tally.size == COUNT }
    drained(server, console)
    twice = server.record.count - COUNT
    assert_operator twice, :<=, at_risk
    assert_equal [0, 0], stats(console).values_at("dead", "failed")
  end

  def assert_taken_over(server)
    console(server).run("Long.perform_async(\"long\", 1)")
    server.eventually("it runs") { server.record.count("began") == 1 }
    pid = server.record.entries.last.pid
    killed_s = Recorder.now_s
    server.signal("KILL", pid)
    server.eventually("another one runs it") { server.record.count("began") == 2 }
    again = server.record.entries.last
    refute_equal pid, again.pid
    assert_operator again.at_s - killed_s, :<, RECOVERY_S
    server.eventually("it ends") { server.record.count("ended") == 1 }
  end
end
