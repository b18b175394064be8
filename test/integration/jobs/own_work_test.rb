# frozen_string_literal: true

require "test_helper"
require "support/event_client"
require "support/jobs_test_case"

# Jobs with `options transaction: true` and their store in the application's PostgreSQL: what a job writes there and its
# end are one transaction, whatever dies.
class OwnWorkTest < Minitest::Test
  include JobsTest

  # Kills and starts of servers take long on a busy machine.
  def time_limit_s = Soak.number(180, 1_800)

  # Of a worker, of PostgreSQL and of the supervisor, by turns.
  KILLS = Soak.number(6, 200)
  # More than are done before the last kill: where the machine is busy, kills come late.
  JOBS = Soak.number(20, 60) * KILLS
  # Jobs that add 1 to the row of their number, in so many ways.
  CLASSES = <<~'RUBY'
    def write(text) = ActiveRecord::Base.connection.execute(text)
    def add(id) = write("UPDATE counts SET value=value+1 WHERE id=#{id}")
    class Adds
      include Chaton::Job
      options transaction: true
      retry_in { 1 }
      def perform(id, pause_s = 0)
        add(id)
        Recorder.note(id, "began")
        sleep pause_s
      end
    end
    class Fails < Adds
      options retry: 1
      retry_in { 1 }
      def perform(id, how)
        add(id)
        Adds.perform_async(id + 1)
        Recorder.note(id, how)
        case how
        when "throw" then throw :done
        when "rollback" then raise ActiveRecord::Rollback
        else raise how
        end
      end
    end
    class Late < Adds
      limits = { concurrency: 1, key: "late" }
      options unique_for: 600, limit: limits
      def perform(id, _pause_s = 0)
        super(id)
        ActiveRecord::Base.connection.add_transaction_record(Listener.new)
      end
      class Listener
        def before_committed!(*) = nil
        def committed!(*, **) = raise("behind the commit")
        def rolledback!(*, **) = nil
        def trigger_transactional_callbacks? = true
        def add_to_transaction(*) = nil
      end
    end
    # Its COMMIT waits for a standby that is not there; the connection ends first.
    class Doubtful < Adds
      def perform(id, _pause_s = 0)
        super(id)
        write("SET LOCAL synchronous_commit=on")
        pid = ActiveRecord::Base.connection.select_value("SELECT pg_backend_pid()")
        Recorder.note(id, "backend-#{pid}")
      end
    end
    class Catching
      def call(*) = catch(:done) { yield }
    end
    Chaton::Jobs.configure { |config| config.server_middleware { |chain| chain.add(Catching) } }
    require "active_job"
    require "active_job/queue_adapters/chaton_adapter"
    ActiveJob::Base.logger = nil
    ActiveJob::Base.queue_adapter = :chaton
    class Mail < ActiveJob::Base
      chaton_options transaction: true
      discard_on(KeyError)
      retry_on(IOError, wait: 0, attempts: 2)
      def perform(id, how)
        add(id)
        raise KeyError if how == "discard"
        raise IOError if how == "retry" && executions == 1
      end
    end
  RUBY

  STREAM = <<~RUBY
    require "chaton"
    run(lambda do |env|
      next Chaton::EventStream.response(env, "counts") if env["QUERY_STRING"].empty?
      Chaton.broadcast("counts", "end")
      [204, {}, []]
    end)
  RUBY

  def setup
    super
    @postgres = PostgresServer.new("fsync" => "off").start
    @database = @postgres.create_database
    @store = @postgres.url(@database)
    sql("CREATE TABLE counts(id int PRIMARY KEY, value int NOT NULL)")
    sql("INSERT INTO counts SELECT n, 0 FROM generate_series(0, #{JOBS}) n")
  end

  def teardown
    super
    @postgres.close
  end

  def test_jobs_that_fail_leave_nothing
    server, console = boot
    %w[error rollback throw].each_with_index do |how, number|
      console.run("Fails.perform_async(#{10 * number}, #{how.dump})")
    end
    server.eventually("all are dead") { stats(console)["dead"] == 3 }
    assert_equal 0, counted
    assert_equal %w[error error rollback rollback throw throw], server.record.entries.map(&:event).sort
    %w[discard retry well].each_with_index do |how, number|
      console.run("Mail.perform_later(#{number}, #{how.dump}); 1")
    end
    server.eventually("the mails that are sent") { counted == 2 }
    drained(server, console)
    assert_equal "0|0 1|1 2|1", values(0..2)
  end

  def test_what_follows_the_commit_fails_no_job
    server, console = boot
    first, second, bid = console.run(<<~RUBY)
      batch = Chaton::Batch.new
      jids = []
      batch.jobs { 2.times { jids << Late.perform_async(1) } }
      [*jids, batch.bid]
    RUBY
    assert_equal [true, nil], [!first.nil?, second]
    server.wait_line(/job Late #{first}: it is done; what followed its COMMIT failed: RuntimeError: behind the commit/)
    server.eventually("its lock and its slot are free") { console.run("!Late.perform_async(1).nil?") }
    server.eventually("it ran again") { counted == 2 }
    drained(server, console)
    assert_equal [0, 0], console.run("[Chaton::Batch.new(#{bid.dump}).status.pending, Chaton::Jobs::DeadSet.new.size]")
  end

  def test_a_commit_without_an_answer_is_looked_up
    # Only the job's own transaction waits for a standby.
    sql("ALTER DATABASE #{@database} SET synchronous_commit=local")
    server, console = boot
    @postgres.query("ALTER SYSTEM SET synchronous_standby_names='nobody'")
    @postgres.query("SELECT pg_reload_conf()")
    jid = console.run("Doubtful.perform_async(1)")
    backend = server.eventually("the job's backend") do
      server.record.entries.filter_map { |entry| entry.event[/backend-(\d+)/, 1] }.first
    end
    server.eventually("its COMMIT waits") do
      sql("SELECT 1 FROM pg_stat_activity WHERE pid=#{backend} AND wait_event='SyncRep'") == "1"
    end
    sql("SELECT pg_terminate_backend(#{backend})")
    server.wait_line(/job Doubtful #{jid}: it is done; what followed its COMMIT failed: ActiveRecord/)
    drained(server, console)
    assert_equal 1, counted
  end

  def test_a_job_that_was_taken_over_is_rolled_back
    server, console = boot
    jid = console.run("Adds.perform_async(1, 1)")
    server.eventually("it runs") { server.record.ids("began").include?("1") }
    sql("UPDATE chaton.jobs SET place=0, owner=NULL, ticket=NULL WHERE place=1")
    server.wait_line(/job Adds #{jid}: another process has taken it over/)
    # It wakes the worker.
    console.run("Adds.perform_async(2)")
    drained(server, console)
    assert_equal [2, 3], [counted, server.record.count("began")]
  end

  def test_a_transaction_that_is_open_for_long_is_logged
    server = boot_jobs("#{classes}def (Chaton::Jobs::OwnWork).long_s = 0.4\n", section: "lease_s 5")
    console = console(server)
    console.run("Adds.perform_async(1)")
    jid = console.run("Adds.perform_async(2, 0.5)")
    server.wait_line(/WARN .*job Adds #{jid}: its transaction was open for \d+ s: do less in a job with transaction/)
    drained(server, console)
    assert_equal [2, 1], [counted, server.log.scan("its transaction was open").size]
    assert_equal 0, server.stop
  end

  # What "outbox: true" does not do.
  def test_a_job_that_was_stored_with_the_rows_broadcasts_once
    server = boot_jobs(<<~RUBY, rackup: STREAM, workers: "web: 1, jobs: 1", section: "lease_s 5")
      #{classes}
      class Tells
        include Chaton::Job
        retry_in { 0.1 }
        def perform(id)
          said = Chaton.broadcast("counts", "count \#{id}", key: "count-\#{id}")
          Recorder.note(id, said.to_s)
          raise "it is tried again" if said
        end
      end
    RUBY
    client = EventClient.new(server.port, "/").connect
    console = console(server)
    console.run(<<~RUBY)
      [[1, true], [2, false], [3, true]].each do |id, kept|
        ActiveRecord::Base.transaction do
          add(id)
          Tells.perform_async(id)
          raise ActiveRecord::Rollback unless kept
        end
      end
    RUBY
    drained(server, console)
    assert_equal [["1", "false"], ["1", "true"], ["3", "false"], ["3", "true"]],
                 server.record.entries.map { |entry| [entry.id, entry.event] }.sort
    server.get("/?end")
    assert_equal ["count 1", "count 3", "end"], [*client.take(2).sort, *client.take(1)]
    assert_equal "1|1 3|1", sql("SELECT id, value FROM counts WHERE value>0 ORDER BY id").tr("\n", " ")
    client.close
    assert_equal 0, server.stop
  end

  def test_each_is_done_once_whatever_is_killed
    server, console = boot(workers: "jobs: 2")
    console.run("Adds.perform_bulk((1..#{JOBS}).map { |id| [id, 0.2] })")
    KILLS.times do |number|
      done = counted
      # The last ones may be dead: those that died with three workers are not run until somebody asks for it.
      server.eventually("some are done") { counted >= [done + 16, JOBS - 10].min }
      kill(server, number % 3)
    end
    server.kill_all
    server = prepare_jobs(classes, section: "lease_s 5").start.ready
    server.eventually("all are done", timeout_s: 240) do
      console.run("Chaton::Jobs::DeadSet.new.retry_all")
      counted == JOBS
    end
    drained(server, console)
    assert_equal "1", sql("SELECT DISTINCT value FROM counts WHERE id>0")
  end

  def test_where_it_cannot_be
    @store = "sqlite://#{scratch}/jobs.db"
    streams = "streams do\nbroker \"sqlite://log.db\"\nend"
    prepare_jobs(classes,
                 config: streams).start.wait_line(/Adds, .*Mail: Chaton.transaction needs jobs and records in one/)
    elsewhere = @postgres.create_database
    @store = @postgres.url(elsewhere)
    prepare_jobs(classes).start.wait_line(/Mail: options transaction: true needs jobs in the PostgreSQL database of/)
  end

  private

  def boot(workers: "jobs: 1")
    server = boot_jobs(classes, workers: workers, section: "lease_s 5", config: RoleServer::QUICK)
    [server, console(server)]
  end

  def classes
    <<~RUBY + CLASSES
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "postgresql", host: #{@postgres.dir.dump}, username: "postgres",
                                              database: #{@database.dump}, pool: 20)
    RUBY
  end

  def kill(server, whom)
    return restart_postgres if whom == 1
    return server.signal("KILL", server.workers.sample) if whom.zero?

    server.signal("KILL")
    server.wait_exit
    server.wait_all_gone
    server.start.ready
  end

  def restart_postgres
    @postgres.kill
    @postgres.start
  end

  def sql(text) = @postgres.query(text, database: @database)
  def counted = Integer(sql("SELECT sum(value) FROM counts") || 0)
  def values(ids) = sql("SELECT id, value FROM counts WHERE id<=#{ids.max} ORDER BY id").tr("\n", " ")
end
