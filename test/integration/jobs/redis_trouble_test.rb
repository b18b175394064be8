# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"
require "support/cpu_time"

# Redis stops, hangs, is full, or requires another password.
class JobsRedisTroubleTest < Minitest::Test
  include JobsTest

  JOBS = SLOW_NOTE
  COUNT = 5_000

  def kind = :redis

  def time_limit_s = 120

  def test_no_job_is_lost_when_redis_restarts
    server, console = crowd
    2.times do |round|
      progress(server, COUNT / 4 * (round + 1))
      round.zero? ? redis.stop : redis.kill
      server.eventually("it is noticed") { server.log.scan(/cannot be reached|connection|refused/i).size > round }
      assert_resting server.workers.first
      redis.start
    end
    assert_all_ran(server, console, twice_max: 2 * 1000)
    assert_equal 0, server.stop
  end

  def test_no_job_is_lost_while_redis_hangs
    server, console = crowd
    progress(server, COUNT / 4)
    redis.pause
    CpuTime.window(server.workers.first, 4) { |share| assert_operator share, :<, CpuTime::REST }
    redis.resume
    assert_all_ran(server, console, twice_max: 1000)
    assert_equal 0, server.stop
  end

  def test_slow_responses_lose_no_job
    server, console = crowd
    client = redis.client
    10.times do |round|
      progress(server, (COUNT / 20) * (round + 1))
      client.call(["CLIENT", "PAUSE", "200", "ALL"])
    end
    assert_all_ran(server, console, twice_max: 0)
    refute_match(/WARN|ERROR/, server.log)
    assert_equal 0, server.stop
  ensure
    client&.close
  end

  def test_workers_recover_when_redis_hangs_past_the_response_timeout
    server, console = crowd("answer_timeout_s 0.5")
    progress(server, COUNT / 4)
    redis.pause
    server.eventually("it is noticed") { server.log.match?(/WARN|ERROR/) }
    assert_resting server.workers.first
    redis.resume
    assert_all_ran(server, console, twice_max: 1000)
    assert_equal 0, server.stop
  end

  def test_no_acknowledged_job_is_lost_when_redis_is_out_of_memory
    @redis = start_redis({ "maxmemory" => "20mb", "maxmemory-policy" => "noeviction" })
    server = prepare_jobs(JOBS)
    console = console(server)
    stored = console.run(<<~RUBY)
      stored = 0
      begin
        loop { Note.perform_async("n\#{stored}", "x" * 100_000) && stored += 1 }
      rescue Chaton::StoreFull => e
        [stored, e.message]
      end
    RUBY
    count, message = stored
    assert_operator count, :>, 50
    assert_match(/memory/i, message)
    raised = assert_raises(Console::Raised) { console.run("Note.perform_bulk([[1, \"x\" * 100_000]])") }
    assert_equal "Chaton::StoreFull", raised.kind
    # A new worker drains the queue.
    server.start.ready
    server.eventually("all acknowledged jobs ran") { server.record.tally.size == count }
    drained(server, console)
    console.run("Note.perform_async(\"again\")")
    server.eventually("there is room") { server.record.of("again").any? }
    assert_equal 0, server.stop
  end

  def test_a_worker_that_is_ready_before_redis_runs_jobs_when_it_comes
    @redis = RedisServer.new(port: 0)
    (@stores ||= []) << redis
    server = boot_jobs(JOBS)
    assert_match(/WARN +jobs: this process is ready without its job store, tries again .* \(No such file/, server.log)
    assert_match(/^  the job store cannot be reached now, .* \(No such file/, server.check)
    redis.start
    console(server).run("Note.perform_async(1)")
    server.eventually("it ran", timeout_s: 60) { server.record.count == 1 }
    assert_equal 1, server.log.scan("No such file").size, "each thread of the engine tries, and one line says so"
    assert_equal 0, server.stop
  end

  def test_a_wrong_password_ends_the_boot_with_its_reason
    @redis = start_redis(password: "secret-of-the-test")
    @store = redis.url(with: "wrong-of-the-test")
    server = launch_jobs(JOBS, config: JobsServer::FAILING)
    assert_equal 1, server.wait_exit(timeout_s: 60)
    assert_match(/password/i, server.log)
    assert_match(/127\.0\.0\.1:#{redis.port}/, server.log)
    refute_match(/of-the-test/, server.log)
    raised = assert_raises(Console::Raised) { console(server).run("Note.perform_async(1)") }
    assert_equal "Chaton::StoreRefused", raised.kind
    refute_match(/of-the-test/, raised.message)
  end

  def test_the_password_is_never_logged
    @redis = start_redis(password: "secret-of-the-test")
    server = boot_jobs(JOBS)
    console(server).run("Note.perform_async(1)")
    server.eventually("it ran") { server.record.count == 1 }
    assert_equal 0, server.stop
    refute_match(/of-the-test/, server.log)
  end

  def test_flushed_scripts_and_closed_connections_lose_no_job
    server, console = crowd
    client = redis.client
    8.times do |round|
      progress(server, (COUNT / 10) * (round + 1))
      client.script(:flush)
      client.call(%w[CLIENT KILL TYPE normal SKIPME yes]) if round.odd?
    end
    assert_all_ran(server, console, twice_max: 4 * 1000)
    assert_equal 0, server.stop
  ensure
    client&.close
  end

  def test_workers_continue_after_a_flush_of_all_data
    server, console = crowd
    progress(server, 100)
    redis.call("FLUSHALL")
    console.run("Note.perform_async(\"after\"); Note.perform_in(0.5, \"later\")")
    server.eventually("it goes on") { (%w[after later] - server.record.tally.keys).empty? }
    drained(server, console)
    server.eventually("it is registered again") { console.run("Chaton::Jobs::ProcessSet.new.size") == 1 }
    assert_equal 0, server.stop
  end

  def test_enqueueing_raises_while_redis_is_down_and_works_again_later
    server = prepare_jobs(JOBS)
    console = console(server)
    console.run("Note.perform_async(1)")
    redis.stop
    raised = assert_raises(Console::Raised) { console.run("Note.perform_async(2)") }
    assert_equal "Chaton::StoreUnavailable", raised.kind
    assert_match(/127\.0\.0\.1:#{redis.port}/, raised.message)
    redis.start
    console.run("Note.perform_async(3)")
    assert_equal [1, 3], documents(console, "queue:default").map { |item| item["args"].first }
  end

  private

  def crowd(section = "")
    server = boot_jobs(JOBS, threads: "4..8", section: section)
    console = console(server)
    console.run("Note.perform_bulk((0...#{COUNT}).map { |n| [n] }); nil")
    [server, console]
  end

  def progress(server, count)
    server.eventually("#{count} jobs") { server.record.count >= count }
  end

  def assert_resting(pid)
    CpuTime.window(pid, 2) { |share| assert_operator share, :<, CpuTime::REST, "CPU while the store is away" }
  end

  def assert_all_ran(server, console, twice_max:)
    server.eventually("every job ran", timeout_s: 60) { server.record.tally.size == COUNT }
    drained(server, console)
    assert_operator server.record.count - COUNT, :<=, twice_max
    assert_equal [0, 0], stats(console).values_at("dead", "failed")
  end
end
