# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Jobs that make the supervisor end their workers are counted, run alone after the second time and are dead after the
# third; a stop is no reason.
class JobsPoisonTest < Minitest::Test
  include JobsTest

  JOBS = NOTE + <<~RUBY
    require "fiddle"
    class Hangs
      include Chaton::Job
      # Holds the GVL until its process is killed.
      HOG = Fiddle::Function.new(Fiddle::Handle::DEFAULT["sleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
      def perform
        Recorder.note("hangs", "began")
        HOG.call(600)
      end
    end
    class Grows
      include Chaton::Job
      KEPT = []
      # It begins to grow when its worker has been measured.
      def perform
        Recorder.note("grows", "began")
        sleep 0.01 until File.exist?("measured.\#{Process.pid}")
        loop { sleep(0.005) && KEPT << ("x" * 500_000) }
      end
    end
    class Crashes
      include Chaton::Job
      def perform
        Recorder.note("crashes", "began")
        Process.kill(:KILL, Process.pid)
        sleep
      end
    end
    class Asks
      include Chaton::Job
      def perform
        Recorder.note("asks", "began")
        Process.kill(:TERM, Process.pid)
        sleep
      end
    end
    class Waits
      include Chaton::Job
      def perform
        Recorder.note("waits", "began")
        sleep
      end
    end
  RUBY

  # Long enough that no worker that works is killed on a busy machine.
  ALIVE = "alive_timeout_s 4\n#{JobsServer::QUICK}".freeze
  # Three kills.
  DEAD_S = 120

  each_store def test_a_job_that_never_gives_the_gvl_back_is_dead_after_three_kills
    needs_gems("fiddle")
    server = boot_jobs(JOBS, workers: "jobs: 2", threads: "1..4", config: ALIVE)
    console = console(server)
    console.run("Hangs.perform_async; 50.times { |n| Note.perform_async(n) }")
    server.wait_line(/worker killed: no Ruby thread/, timeout_s: DEAD_S)
    console.run("50.times { |n| Note.perform_async(50 + n) }")
    server.eventually("it is dead", timeout_s: DEAD_S) { stats(console)["dead"] == 1 }
    server.eventually("all beside it ran") { server.record.tally.count { |id, _| id != "hangs" } == 100 }
    assert_equal 3, server.record.of("hangs").size
    item = documents(console, "dead").first
    assert_equal ["Hangs", "Chaton::Jobs::Poison", 3], [item["class"], item["error_class"], item["chaton"]["deaths"]]
    story = Array.new(3) { /no sign of life \(alive_timeout 4(?:\.0)? s\) at 20\d\d-\d\d-\d\dT[\d:]+Z/ }.join(", ")
    assert_match(/3 times within 72 hours: #{story}/, item["error_message"])
    # It held the GVL from its first moment, and its worker was known as ready.
    refute_match(/boot_timeout/, server.log)
    assert_equal 0, server.stop
  end

  def test_a_job_that_takes_too_much_memory_is_dead_after_three_workers
    memory = "constants_for_tests check_every_s: 0.1\nmemory do\n  limit \"100M\"\n  limit_hard \"128M\"\nend"
    server = boot_jobs(JOBS, workers: "jobs: 1", threads: "4..4", config: "#{memory}\nshutdown_timeout_s 60")
    console = console(server)
    console.run("Grows.perform_async; 50.times { |n| Note.perform_async(n) }")
    server.eventually("it is dead", timeout_s: DEAD_S) do
      mark_measured_workers(server)
      stats(console)["dead"] == 1
    end
    item = documents(console, "dead").first
    assert_equal ["Grows", "Chaton::Jobs::Poison", 3], [item["class"], item["error_class"], item["chaton"]["deaths"]]
    assert_match(/3 times within 72 hours: memory: \d+ MiB \(hard ceiling 128 MiB\) at /, item["error_message"])
    assert_equal 3, server.record.of("grows").size
    server.eventually("all beside it ran") { server.record.tally.count { |id, _| id != "grows" } == 50 }
    assert_equal 0, server.stop
  end

  def test_ten_stops_are_noted_and_five_signals_to_its_worker_are_not_fatal
    server = boot_jobs(JOBS, workers: "jobs: 1", config: "shutdown_timeout_s 0.1\n#{JobsServer::QUICK}")
    console = console(server)
    console.run("Waits.perform_async")
    10.times do |stop|
      server.eventually("it runs", timeout_s: 60) { server.record.of("waits").size == stop + 1 }
      stop.even? ? server.signal("TERM", server.workers.first) : server.signal("USR1")
      server.wait_line(/interrupted jobs went back/, count: stop + 1, timeout_s: 60)
      server.wait_line(/phased restart done/, count: (stop + 1) / 2, timeout_s: 60)
    end
    server.eventually("it runs", timeout_s: 60) { server.record.of("waits").size == 11 }
    assert_equal 0, server.stop
    item = documents(console, "queue:default").first
    assert_equal({ "stops" => 11, "unasked" => 5 }, item["chaton"])
    assert_equal [0, 0, 0], stats(console).values_at("failed", "retries", "dead")
  end

  each_store def test_a_job_that_gets_its_worker_stopped_goes_behind_the_others_and_ends_dead
    config = "shutdown_timeout_s 0.1\n#{JobsServer::QUICK}"
    server = boot_jobs(JOBS, workers: "jobs: 1", threads: "1..4", config: config)
    console = console(server)
    console.run("Asks.perform_async; 50.times { |n| Note.perform_async(n) }")
    server.eventually("it is dead", timeout_s: DEAD_S) { stats(console)["dead"] == 1 }
    server.eventually("all beside it ran") { server.record.tally.count { |id, _| id != "asks" } == 50 }
    assert_equal 6, server.record.of("asks").size
    item = documents(console, "dead").first
    assert_equal ["Asks", "Chaton::Jobs::Poison"], item.values_at("class", "error_class")
    assert_equal({ "stops" => 6, "unasked" => 6 }, item["chaton"])
    assert_match(/got a signal to stop while it ran this job, 6 times, and not from its supe/, item["error_message"])
    assert_equal 0, server.stop
  end

  every_store def test_a_job_that_crashes_a_process_without_a_supervisor_is_dead_after_three_times
    server = boot_jobs(JOBS, workers: "0", threads: "1..4", args: %w[--jobs])
    console = console(server)
    console.run("Crashes.perform_async; 20.times { |n| Note.perform_async(n) }")
    3.times do
      assert_equal "SIGKILL", server.wait_exit
      server.start
    end
    server.ready
    assert_dead_unseen(server, console, "Crashes")
    server.eventually("all beside it ran") { server.record.tally.size == 20 }
    assert_equal 3, server.record.of("crashes").size
    assert_equal 0, server.stop
  end

  every_store def test_a_job_whose_whole_process_tree_is_killed_three_times_is_dead
    server = boot_jobs(JOBS, workers: "jobs: 1", config: JobsServer::QUICK)
    console = console(server)
    console.run("Waits.perform_async")
    3.times do |kill|
      server.eventually("it runs", timeout_s: 60) { server.record.of("waits").size == kill + 1 }
      server.kill_all
      server.start.ready
    end
    assert_dead_unseen(server, console, "Waits")
    assert_equal 0, server.stop
  end

  each_store def test_a_process_that_is_killed_because_it_does_not_stop_in_time_is_no_reason
    server = boot_jobs(JOBS, workers: "0", args: %w[--jobs], config: "shutdown_timeout_s 600")
    console = console(server)
    console.run("Waits.perform_async")
    3.times do |kill|
      server.eventually("it runs", timeout_s: 60) { server.record.of("waits").size == kill + 1 }
      # It begins quiet, too, and the one before it is listed until it is forgotten.
      server.eventually("the store knows it", timeout_s: 60) { quiet_processes(console) == [false] }
      server.signal("TERM")
      server.eventually("the store knows that it stops", timeout_s: 60) { quiet_processes(console) == [true] }
      server.signal("KILL")
      server.wait_exit
      server.start.ready
    end
    server.eventually("it runs", timeout_s: 60) { server.record.of("waits").size == 4 }
    assert_equal 0, stats(console)["dead"]
    server.signal("QUIT")
    server.wait_exit
    assert_equal({ "stops" => 1 }, documents(console, "queue:default").first["chaton"])
  end

  private

  # The supervisor reads a worker's memory when the worker has become ready, before it answers the next question.
  def mark_measured_workers(server)
    first, second = Array.new(2) { ready_pids(server) }
    (first & second).each { |pid| server.write("measured.#{pid}", "") }
  end

  def ready_pids(server)
    server.status["workers"].filter_map { |worker| worker["pid"] if worker["state"] == "ready" }
  end

  def quiet_processes(console) = console.run("Chaton::Jobs::ProcessSet.new.map(&:quiet)")

  def assert_dead_unseen(server, console, name)
    server.eventually("it is dead") { stats(console)["dead"] == 1 }
    item = documents(console, "dead").first
    assert_equal [name, "Chaton::Jobs::Poison", 3], [item["class"], item["error_class"], item["chaton"]["deaths"]]
    assert_match(/3 times within 72 hours: (?:its process is gone, nobody saw how at 20[^,]+(?:, )?){3}\z/,
                 item["error_message"])
  end
end
