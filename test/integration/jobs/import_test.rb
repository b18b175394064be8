# frozen_string_literal: true

require "test_helper"
require "pg"
require "support/jobs_test_case"

# `chaton jobs import`, from tables as Solid Queue and GoodJob make them in PostgreSQL.
class ImportTest < Minitest::Test
  include JobsTest

  JOBS = Soak.number(3_000, 100_000)
  # Processes that claim as Solid Queue's do, of rows at once.
  CLAIMERS = 2
  CLAIMED = 3

  SOLID_QUEUE = <<~SQL
    CREATE TABLE solid_queue_jobs(id bigserial PRIMARY KEY, queue_name text NOT NULL, class_name text NOT NULL,
      arguments text, priority int NOT NULL DEFAULT 0, active_job_id text, scheduled_at timestamp,
      finished_at timestamp, concurrency_key text);
    CREATE TABLE solid_queue_pauses(id bigserial PRIMARY KEY, queue_name text NOT NULL);
    CREATE TABLE solid_queue_processes(id bigserial PRIMARY KEY, last_heartbeat_at timestamp NOT NULL);
    CREATE TABLE solid_queue_recurring_tasks(id bigserial PRIMARY KEY, key text NOT NULL, schedule text NOT NULL,
      class_name text, arguments text, static boolean NOT NULL DEFAULT true);
  SQL
  EXECUTION = <<~SQL
    CREATE TABLE solid_queue_%<kind>s_executions(id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE
      REFERENCES solid_queue_jobs(id) ON DELETE CASCADE, scheduled_at timestamp, error text);
  SQL
  GOOD_JOB = <<~SQL
    CREATE TABLE good_jobs(id uuid PRIMARY KEY DEFAULT gen_random_uuid(), queue_name text, serialized_params jsonb,
      scheduled_at timestamp, finished_at timestamp, error text, active_job_id uuid DEFAULT gen_random_uuid(),
      batch_id uuid, batch_callback_id uuid, retried_good_job_id uuid);
    CREATE TABLE good_job_processes(id uuid PRIMARY KEY DEFAULT gen_random_uuid(), updated_at timestamp NOT NULL);
  SQL
  # What Solid Queue does to claim jobs (app/models/solid_queue/ready_execution.rb), as soon as some are taken over.
  CLAIMER = <<~'RUBY'
    require "pg"
    $stdout.sync = true
    host, database, count = ARGV
    pg = PG.connect(host: host, user: "postgres", dbname: database)
    sleep 0.001 until pg.exec("SELECT 1 FROM pg_class WHERE relname='jobs'").ntuples > 0
    sleep 0.001 until pg.exec("SELECT 1 FROM chaton.jobs LIMIT 1").ntuples > 0
    loop do
      pg.transaction do
        rows = pg.exec("SELECT id, job_id FROM solid_queue_ready_executions ORDER BY id LIMIT #{count} " \
                       "FOR UPDATE SKIP LOCKED")
        exit if rows.ntuples.zero? && pg.exec("SELECT 1 FROM solid_queue_ready_executions LIMIT 1").ntuples.zero?
        ids = rows.map { |row| row["job_id"] }
        ids.each { |id| pg.exec("INSERT INTO solid_queue_claimed_executions(job_id) VALUES (#{id})") }
        pg.exec("DELETE FROM solid_queue_ready_executions WHERE job_id IN (#{ids.join(",")})") if ids.any?
      end
    end
  RUBY

  def time_limit_s = Soak.number(60, 600)

  def setup
    super
    @postgres = PostgresServer.shared
    @database = @postgres.create_database
    @store = @postgres.url(@database)
  end

  def test_solid_queue_while_it_runs
    solid_queue
    add("ready", (1..JOBS).map { |id| mail(id) })
    add("scheduled", [mail(JOBS + 1), mail(JOBS + 2)], "now()+interval '1 hour'")
    add("blocked", [mail(JOBS + 3, "Limited")])
    add("failed", [mail(0)])
    add("ready", [mail(0, "Unknown")])
    sql("UPDATE solid_queue_failed_executions SET error='{\"exception_class\":\"IOError\",\"message\":\"gone\"}'")
    sql("INSERT INTO solid_queue_pauses(queue_name) VALUES('later')")
    sql("INSERT INTO solid_queue_recurring_tasks(key, schedule, class_name, arguments, static) " \
        "VALUES('k', 'every hour', 'Mail', '[7]', false)")
    sql("INSERT INTO solid_queue_processes(last_heartbeat_at) VALUES(now())")
    claimers = Array.new(CLAIMERS) { spawn(RbConfig.ruby, "-e", CLAIMER, @postgres.dir, @database, CLAIMED.to_s) }
    text = import("solid_queue")
    # It claims the job of the unknown class, too.
    claimers.each { |pid| Process.wait(pid) }
    assert_match(/paused, as they were: later/, text)
    assert_match(/cron "k", "every hour", "Mail", args: \[7\]/, text)
    claimed = sql("SELECT j.arguments FROM solid_queue_claimed_executions JOIN solid_queue_jobs j ON j.id=job_id").lines
      .map { |line| JSON.parse(line)["arguments"].first }
    taken = stored(0)
    assert_equal [*1..JOBS, JOBS + 3], (claimed - [0] + taken).sort
    assert_operator taken.size, :>, 1
    assert_operator claimed.size, :>, 1
    assert_equal [JOBS + 1, JOBS + 2], stored(2)
    assert_equal "IOError gone", dead("error_class", "error_message")
    assert_equal "0", sql("SELECT count(*) FROM solid_queue_jobs j WHERE NOT EXISTS(SELECT 1 FROM " \
                          "solid_queue_claimed_executions WHERE job_id=j.id)")
  end

  def test_good_job
    sql(GOOD_JOB)
    rows = (1..5).map { |id| "('default', '#{mail(id)}')" }
    sql("INSERT INTO good_jobs(queue_name, serialized_params) VALUES #{rows.join(",")}")
    change = ->(id, set) { sql("UPDATE good_jobs SET #{set} WHERE serialized_params->'arguments'->0='#{id}'::jsonb") }
    change.call(2, "scheduled_at=now()+interval '1 hour'")
    change.call(3, "finished_at=now(), error='IOError: gone'")
    change.call(4, "finished_at=now()")
    pg = PG.connect(host: @postgres.dir, user: PostgresServer::USER, dbname: @database)
    pg.exec("SELECT pg_advisory_lock(('x' || substr(md5('good_jobs-' || id::text), 1, 16))::bit(64)::bigint) " \
            "FROM good_jobs WHERE serialized_params->'arguments'->0='5'::jsonb")
    assert_match(/jobs taken over: 2 waiting, 1 failed/, import("good_job"))
    assert_equal [[1], [2], "IOError gone"], [stored(0), stored(2), dead("error_class", "error_message")]
    assert_equal "4\n5", sql("SELECT serialized_params->'arguments'->0 FROM good_jobs ORDER BY 1")
  ensure
    pg&.close
  end

  def test_what_it_refuses
    assert_match(/no table solid_queue_jobs in the databases that ActiveRecord has/, import("solid_queue"))
    assert_match(/--from is missing: write --from solid_queue or --from good_job/, import(nil))
    assert_match(/--from .*solid_queue or good_job/, import("resque"))
    solid_queue
    sql("INSERT INTO solid_queue_processes(last_heartbeat_at) VALUES(now() AT TIME ZONE 'UTC')")
    add("ready", [mail(1)])
    @store = "sqlite://#{scratch}/jobs.db"
    assert_match(/solid_queue has 1 processes that run, .*: stop it first/, import("solid_queue"))
    sql("DELETE FROM solid_queue_processes")
    assert_match(/jobs taken over: 1 ready/, import("solid_queue"))
    assert_match(/jobs taken over: none/, import("solid_queue"))
    assert_equal 1, console(@server).run("Chaton::Jobs::Stats.new.enqueued")
  end

  private

  def solid_queue
    sql(SOLID_QUEUE + %w[ready scheduled blocked failed claimed].map { |kind| format(EXECUTION, kind: kind) }.join)
  end

  def mail(id, name = "Mail")
    JSON.generate("job_class" => name, "job_id" => "id-#{id}", "provider_job_id" => nil, "queue_name" => "default",
                  "priority" => nil, "arguments" => [id], "executions" => 0, "exception_executions" => {},
                  "locale" => "en", "timezone" => nil, "enqueued_at" => "2026-11-27T00:00:00Z")
  end

  def add(kind, documents, at = "NULL")
    documents.each_slice(200) { |some| add_some(kind, some, at) }
  end

  def add_some(kind, documents, at)
    values = documents.map { |text| "('default', 'Mail', '#{text}')" }.join(",")
    sql("WITH j AS (INSERT INTO solid_queue_jobs(queue_name, class_name, arguments) VALUES #{values} RETURNING id) " \
        "INSERT INTO solid_queue_#{kind}_executions(job_id, scheduled_at) SELECT id, #{at} FROM j ORDER BY id")
  end

  # @return [String] what the command prints
  def import(from)
    @server = prepare_jobs(<<~RUBY)
      require "active_job"
      require "active_job/queue_adapters/chaton_adapter"
      require "active_record"
      ActiveJob::Base.logger = nil
      ActiveJob::Base.queue_adapter = :chaton
      ActiveRecord::Base.establish_connection(adapter: "postgresql", host: #{@postgres.dir.dump}, username: "postgres",
                                              database: #{@database.dump})
      class Mail < ActiveJob::Base
        def perform(*); end
      end
      class Limited < Mail
        chaton_options limit: { concurrency: 1, key: ->(id) { id } }, unique_for: 60
      end
    RUBY
    words = from ? ["--from", from] : []
    out, err, = @server.run_command("jobs", "import", *words)
    out + err.to_s
  end

  # @return [Array<Integer>] arguments of the jobs in a place
  def stored(place)
    sql("SELECT convert_from(payload, 'UTF8') FROM chaton.jobs WHERE place=#{place} ORDER BY id").lines
      .map { |line| JSON.parse(line)["args"].first["arguments"].first }.sort
  end

  def dead(*members)
    JSON.parse(sql("SELECT convert_from(payload, 'UTF8') FROM chaton.jobs WHERE place=4")).values_at(*members).join(" ")
  end

  def sql(text) = @postgres.query(text, database: @database)
end
