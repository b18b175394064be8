# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/jobs_test_case"
require "support/small_disk"

# The database file is locked, damaged or removed, or its disk is full.
class JobsSqliteTroubleTest < Minitest::Test
  include JobsTest

  JOBS = SLOW_NOTE
  COUNT = 3_000

  def kind = :sqlite

  def time_limit_s = 120

  def test_no_job_is_lost_while_another_process_locks_the_file
    server, console = crowd
    progress(server, COUNT / 4)
    locked(file) do
      # The lock lasts longer than the timeout of workers and clients.
      raised = assert_raises(Console::Raised) { console.run("Note.perform_async(\"refused\")") }
      assert_equal "Chaton::StoreBusy", raised.kind
      assert_match(/jobs\.db/, raised.message)
      CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST }
    end
    console.run("Note.perform_async(\"after\")")
    assert_all_ran(server, console, COUNT + 1)
    refute_includes server.record.tally.keys, "refused"
    assert_equal 0, server.stop
  end

  def test_a_full_disk_loses_no_acknowledged_job
    SmallDisk.open(megabytes: 3) do |dir|
      @store = "sqlite://#{dir}/jobs.db"
      server = boot_jobs(JOBS)
      console = console(server)
      server.stop_between_writes(server.workers.first, "#{dir}/jobs.db")
      count, message = fill(console)
      assert_operator count, :>, 10
      assert_match(/full|space/i, message)
      assert_match(/jobs\.db/, message)
      server.signal("CONT", server.workers.first)
      CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST }
      # Claiming needs a write, too.
      SmallDisk.resize(dir, megabytes: 16)
      server.eventually("all acknowledged jobs ran") { server.record.tally.size >= count }
      drained(server, console)
      assert_equal count, server.record.tally.size
      console.run("Note.perform_async(\"again\")")
      server.eventually("there is room") { server.record.of("again").any? }
      assert_equal 0, server.stop
    end
  end

  def test_a_disk_filled_by_others_loses_no_job
    SmallDisk.open(megabytes: 4) do |dir|
      @store = "sqlite://#{dir}/jobs.db"
      server = boot_jobs(JOBS)
      console = console(server)
      console.run("Note.perform_bulk((0...500).map { |n| [n] }); nil")
      progress(server, 50)
      ballast = SmallDisk.fill(dir)
      assert_raises(Console::Raised) { console.run("loop { Note.perform_async(\"lost\", \"x\" * 5000) }") }
      CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST }
      File.delete(ballast)
      server.eventually("every job ran", timeout_s: 60) { (server.record.tally.keys - ["lost"]).size == 500 }
      drained(server, console)
      assert_equal 0, server.stop
    end
  end

  def test_a_file_that_is_not_a_database_ends_the_boot
    { "garbage" => "no database" * 1000, "torn" => :torn }.each do |name, content|
      @store = "sqlite://#{scratch}/#{name}.db"
      damage("#{scratch}/#{name}.db", content)
      server = launch_jobs(JOBS, config: JobsServer::FAILING)
      assert_equal 1, server.wait_exit(timeout_s: 60), name
      assert_match(/#{name}\.db/, server.log)
      assert_match(/damaged|malformed|not a database|corrupt/i, server.log)
      raised = assert_raises(Console::Raised, name) { console(server).run("Note.perform_async(1)") }
      assert_equal "Chaton::StoreCorrupt", raised.kind
    end
  end

  def test_a_removed_file_is_logged_without_spinning
    server = boot_jobs(JOBS)
    console = console(server)
    console.run("Note.perform_async(1)")
    server.eventually("it ran") { server.record.count == 1 }
    drained(server, console)
    # SQLite may remove one meanwhile.
    FileUtils.rm_f(Dir.glob("#{file}*"))
    server.eventually("it is noticed", timeout_s: 40) { server.log.match?(/(?:WARN|ERROR).*jobs\.db/) }
    CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, CpuTime::REST }
    # Workers open a new file at the same path.
    server.eventually("it goes on", timeout_s: 40) do
      console(server).run("Note.perform_async(\"new\")")
      server.record.of("new").any?
    end
    assert_equal 0, server.stop
  end

  def test_the_error_names_a_directory_that_cannot_be_created
    File.write(File.join(scratch, "plain"), "")
    @store = "sqlite://#{scratch}/plain/jobs.db"
    server = launch_jobs(JOBS, config: JobsServer::FAILING)
    assert_equal 1, server.wait_exit(timeout_s: 60)
    assert_match(%r{plain/jobs\.db}, server.log)
  end

  private

  def file = store.delete_prefix("sqlite://")

  def crowd
    server = boot_jobs(JOBS, threads: "4..8", config: "constants_for_tests lock_timeout_s: 2.0")
    console = console(server)
    console.run("Note.perform_bulk((0...#{COUNT}).map { |n| [n] }); nil")
    [server, console]
  end

  def progress(server, count)
    server.eventually("#{count} jobs") { server.record.count >= count }
  end

  def fill(console)
    console.run(<<~RUBY)
      stored = 0
      begin
        loop { Note.perform_async("n\#{stored}", "x" * 20_000) && stored += 1 }
      rescue Chaton::StoreFull => e
        [stored, e.message]
      end
    RUBY
  end

  # Another program holds the lock, like a backup or an open shell.
  def locked(path)
    program = sqlite(path)
    program.run("$db.busy_timeout(20_000); $db.execute(\"BEGIN EXCLUSIVE\"); nil")
    yield
    program.run("$db.execute(\"ROLLBACK\"); nil")
  end

  # A program that uses SQLite without Chaton.
  def sqlite(path)
    program = Console.new(scratch, requires: ["sqlite3"])
    (@consoles ||= []) << program
    program.run("$db = SQLite3::Database.new(#{path.dump}); nil")
    program
  end

  def damage(path, content)
    return File.write(path, content) unless content == :torn

    # A real database with overwritten pages.
    sqlite(path).run("$db.execute(\"CREATE TABLE t(a)\"); $db.execute(\"INSERT INTO t VALUES(randomblob(50000))\"); " \
                     "$db.close; nil")
    File.open(path, "r+b") { |io| io.write("SQLite format 3\0".b, "\xFF".b * 3000) }
  end

  def assert_all_ran(server, console, count)
    server.eventually("every job ran", timeout_s: 60) { server.record.tally.size == count }
    drained(server, console)
    assert_equal [0, 0], stats(console).values_at("dead", "failed")
  end
end
