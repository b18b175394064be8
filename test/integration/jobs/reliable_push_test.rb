# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Enqueueing while Redis is away, with `reliable_push`. Redis is reached by a socket file, so that it is found again
# when it is started once more.
class ReliablePushTest < Minitest::Test
  include JobsTest

  JOBS = NOTE + <<~RUBY
    class Once
      include Chaton::Job
      options unique_for: 60
      def perform(id) = Recorder.note(id)
    end
  RUBY
  APP = <<~RUBY
    require File.expand_path("app/jobs/jobs", __dir__)
    run(lambda do |env|
      Note.perform_async(env["QUERY_STRING"]) if env["PATH_INFO"] == "/push"
      [200, { "content-type" => "text/plain" }, ["ok"]]
    end)
  RUBY
  ON = "reliable_push \"1 MB\""
  BRIEF = "#{ON}\nconstants_for_tests reliable_push_timeout_s: 0.1".freeze
  WARNED = /WARN  jobs: .*kept in memory \(1 so far, .*lost if this process ends/
  COUNT = 300
  LOST_3 = /ERROR jobs that were kept in memory .* lost  count=3 classes="Note 3" store=/

  def kind = :redis

  def time_limit_s = 120

  def redis
    @redis ||= RedisServer.new(port: 0).tap { |server| (@stores ||= []) << server.start }
  end

  def test_a_console_keeps_jobs_and_sends_them_once_in_their_order
    console = away
    jids = console.run("(1...#{COUNT}).map { |n| Note.perform_async(n) } + Note.perform_bulk([[#{COUNT}]])")
    assert_equal COUNT, jids.uniq.compact.size
    redis.start
    jids.push(console.run("Note.perform_async(#{COUNT + 1})"))
    @server.eventually("all are sent") { log.include?("INFO  jobs: the store answers again") }
    found = documents(console, "queue:default")
    assert_equal (0..COUNT + 1).to_a, found.map { |item| item["args"].first }
    assert_equal jids, found.map { |item| item["jid"] }.drop(1)
    assert_equal 1, log.scan(WARNED).size
    assert_match(/again: \d+ jobs that waited in memory for up to \d+\.\d s are sent$/, log)
  end

  def test_it_is_off_by_default
    raised = assert_raises(Console::Raised) { away("").run("Note.perform_async(1)") }
    assert_equal "Chaton::StoreUnavailable", raised.kind
    refute_match(/WARN/, log)
  end

  def test_what_only_redis_can_answer_raises
    console = away
    ["Once.perform_async(1)", "Chaton::Batch.new.jobs { Note.perform_async(1) }"].each do |code|
      raised = assert_raises(Console::Raised) { console.run(code) }
      assert_equal "Chaton::StoreUnavailable", raised.kind
    end
    refute_match(/WARN/, log)
    _, errors, status = @server.jobs_command("enqueue", "Note", "[1]")
    assert_equal 1, status, "the command ends at once, and reports what is not stored"
    assert_match(/cannot connect/, errors)
  end

  def test_the_jobs_of_a_process_that_ends_are_named
    console = away(BRIEF)
    console.run("3.times { |n| Note.perform_async(n) }")
    console.start("exit")
    @server.eventually("it says so") { log.include?("ERROR") }
    assert_match(LOST_3, log)
  end

  def test_exit_without_at_exit_names_them_too
    console = away(BRIEF)
    console.run("3.times { |n| Note.perform_async(n) }")
    console.start("exit!")
    @server.eventually("it says so", timeout_s: 60) { log.include?("ERROR") }
    assert_match(LOST_3, log)
  end

  def test_a_preloader_names_the_jobs_it_could_not_send
    pushes = "#{APP}3.times { |n| Note.perform_async(n) } if File.exist?(#{"push".dump})\n"
    server = boot_jobs(JOBS, rackup: pushes, workers: "web: 1", section: BRIEF)
    redis.kill
    server.write("push", "")
    2.times do |round|
      server.signal("USR1")
      server.wait_line(/phased restart done/, count: round + 1, timeout_s: 60)
    end
    server.wait_line(LOST_3, timeout_s: 60)
    assert_equal 0, server.stop
  end

  def test_a_phased_restart_while_redis_is_away_loses_nothing
    server = boot_jobs(JOBS, rackup: APP, workers: "web: 1", section: BRIEF,
                             config: "shutdown_timeout_s 60")
    redis.kill
    20.times { |n| assert_equal 200, server.get("/push?#{n}").status }
    server.signal("USR1")
    server.wait_line(/INFO  jobs: 20 jobs wait in memory .* in (?:60|59) s at most/, timeout_s: 60)
    redis.start
    server.wait_line(/phased restart done/, timeout_s: 60)
    found = documents(console(server), "queue:default")
    assert_equal (0...20).map(&:to_s), found.map { |item| item["args"].first }
    assert_equal 0, server.stop
    refute_match(/ERROR/, server.log)
  end

  def test_a_refused_job_is_named_and_the_others_are_sent
    redis.call("SET", "queue:bad", "no list")
    console = away
    console.run("Note.perform_async(1)")
    jid = console.run('Note.set(queue: "bad").perform_async(2)')
    console.run("Note.perform_async(3)")
    redis.start
    @server.eventually("it says so", timeout_s: 60) { log.include?("are refused") }
    assert_match(/WARN  jobs: 1 jobs for the queue bad .*: Note #{jid}$/, log)
    @server.eventually("the others are sent", timeout_s: 60) { log.include?("2 jobs that waited in memory") }
    assert_equal([0, 1, 3], documents(console, "queue:default").map { |item| item["args"].first })
  end

  def test_the_end_of_a_process_sends_what_it_can
    console = away("#{ON}\nconstants_for_tests reliable_push_timeout_s: 60.0")
    console.run("3.times { |n| Note.perform_async(n) }")
    console.start("exit")
    redis.start
    other = console(@server)
    @server.eventually("they are there") { documents(other, "queue:default").size == 4 }
    refute_match(/ERROR/, log)
  end

  def test_a_forked_child_has_none_of_them
    console = away
    console.run("Note.perform_async(1)")
    child = "pid = fork { Note.perform_async(2) if ARGV.empty? }; Process.wait2(pid)[1].exitstatus"
    assert_equal 0, console.run("ARGV.replace([1]); #{child}")
    refute_match(/ERROR/, log)
    redis.start
    @server.eventually("it is sent") { log.include?("answers again") }
    assert_equal([0, 1], documents(console, "queue:default").map { |item| item["args"].first })
  end

  def test_a_server_answers_requests_and_runs_the_jobs_later
    server = boot_jobs(JOBS, rackup: APP, workers: "web: 1, jobs: 1", section: ON)
    server.get("/push?0")
    server.eventually("the first job ran") { server.record.tally.key?("0") }
    redis.kill
    20.times { |n| assert_equal 200, server.get("/push?#{n + 1}").status }
    server.eventually("it is logged") { server.log.match?(WARNED) }
    redis.start
    server.eventually("all ran") { server.record.tally.size == 21 }
    server.eventually("it says so") { server.log.include?("are sent") }
    assert_equal 0, server.stop
    refute_match(/ERROR/, server.log)
  end

  def test_the_sidekiq_gems_own_pushes_are_kept
    needs_gems "sidekiq"
    jobs = <<~RUBY
      require "sidekiq"
      class Note
        include Sidekiq::Worker
        def perform(id) = Recorder.note(id)
      end
    RUBY
    env = { "REDIS_URL" => redis.url }
    server = boot_jobs(jobs, rackup: APP, workers: "web: 1, jobs: 1", section: ON, env: env)
    server.get("/push?0")
    server.eventually("the first job ran") { server.record.tally.key?("0") }
    redis.kill
    5.times { |n| assert_equal 200, server.get("/push?#{n + 1}").status }
    redis.start
    server.eventually("all ran") { server.record.tally.size == 6 }
    assert_equal 0, server.stop
    refute_match(/ERROR/, server.log)
  end

  def test_a_worker_that_stops_names_the_jobs_it_could_not_send
    server = boot_jobs(JOBS, rackup: APP, workers: "web: 1", section: BRIEF)
    server.get("/push?0")
    redis.kill
    4.times { |n| assert_equal 200, server.get("/push?#{n + 1}").status }
    assert_equal 0, server.stop
    assert_match(/ERROR jobs that were kept in memory .*  count=4 classes="Note 4"/, server.log)
  end

  private

  # @return [Console] that has pushed a job 0; Redis is killed since
  def away(section = ON)
    @server = prepare_jobs(JOBS, section: section)
    console = console(@server)
    console.run("Note.perform_async(0)")
    redis.kill
    console
  end

  # @return [String] what the console has written
  def log = File.read(File.join(@server.dir, "console.log"))
end
