# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"
require "support/admin_client"
require "support/postgres_server"
require "active_record"
require "chaton"
require "chaton/core"

# `Chaton.produce(…, outbox: true)`: a transaction of the application stores records, a worker gives them to the log.
class OutboxTest < Minitest::Test
  include StreamsTest

  # Kills and starts of servers take long on a busy machine.
  def time_limit_s = 240

  # In one run, and in that of a night.
  KILLS = Soak.number(8, 20)
  KEYS = 5

  def setup
    super
    @server = PostgresServer.shared
    @database = @server.create_database
  end

  def teardown
    @sessions&.each(&:close)
    ActiveRecord::Base.remove_connection
    Chaton::Jobs.swap_client(nil)
    Chaton::Streams.use(nil)
    super
    @own_server&.close
  end

  each_log def test_a_commit_hands_records_over_and_a_rollback_none
    boot
    transaction do
      produce("dropped", key: "a")
      raise ActiveRecord::Rollback
    end
    odd = "it's \\ \" $1 %s \u0000 \xFF".b
    at = Time.at(1_700_000_000, 123, :millisecond)
    transaction do
      Chaton.produce(topic, odd, key: "\xFE'".b, headers: { "h" => ["1", nil], "o" => odd }, timestamp: at,
                                 outbox: true)
      Chaton.produce(topic, nil, partition: 2, outbox: true)
      transaction(requires_new: true) do
        produce("dropped", key: "a")
        raise ActiveRecord::Rollback
      end
      Chaton.produce_many(topic, [{ "id" => 1 }.to_a, { value: { id: 2 }, key: 3 }], outbox: true)
      assert_empty log.read(topic)
    end
    records = read(4)
    first = records.find { |one| one[:value] == odd }
    id = first[:headers].delete("outbox-id")
    assert_match(/\A\h{8}-\h{4}-\h{4}-\h{4}-\h{12}\z/, id)
    assert_equal ["\xFE'".b, { "h" => ["1", nil], "o" => odd }, 1_700_000_000_123],
                 [first[:key].b, first[:headers], first[:timestamp_ms]]
    assert_equal [nil, 2], records.find { |one| one[:value].nil? }.values_at(:key, :partition)
    assert_equal [nil, '[["id",1]]', odd, '{"id":2}'], records.map { |one| one[:value] }.sort_by(&:to_s)
    assert_equal 4, records.map { |one| one[:headers].fetch("outbox-id", id) }.uniq.size
    @chaton.eventually("rows are removed") { waiting.zero? }
  end

  def test_pg_and_sequel
    require "sequel"
    @kind = :local
    boot
    pg = PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: @database)
    sequel = Sequel.connect(adapter: "postgres", host: @server.dir, user: PostgresServer::USER, database: @database)
    pg.transaction { Chaton.produce(topic, "pg", outbox: true, connection: pg) }
    sequel.transaction(rollback: :always) { Chaton.produce(topic, "dropped", outbox: true, connection: sequel) }
    sequel.transaction { Chaton.produce(topic, "sequel", outbox: true, connection: sequel) }
    assert_equal(%w[pg sequel], read(2).map { |one| one[:value] }.sort)
    error = assert_raises(Chaton::Error) { Chaton.produce(topic, "none", outbox: true) }
    assert_match(/none is open on this thread: call it inside Order.transaction/, error.message)
    assert_raises(Chaton::StreamRefused) { transaction { Chaton.produce!(topic, "x", outbox: true) } }
  ensure
    pg&.close
    sequel&.disconnect
  end

  def test_the_relay_is_told_behind_the_commit
    @kind = :local
    use(@server.url(@database))
    pg = PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: @database)
    pg.exec("LISTEN chaton_outbox")
    transaction do
      Chaton.produce("t", "dropped", outbox: true)
      raise ActiveRecord::Rollback
    end
    transaction { Chaton.produce("t", "kept", outbox: true) }
    assert_equal "chaton_outbox", pg.wait_for_notify(WAIT_S)
    assert_equal "1", sql("SELECT count(*) FROM chaton.outbox")
    assert_nil pg.wait_for_notify(0), "there was one commit"
  ensure
    pg&.close
  end

  each_log def test_what_the_log_refuses_is_kept_whole_and_stops_nobody
    boot
    transaction do
      produce("x" * 2_000_000, key: "large")
      Chaton.produce(topic, "there is none", partition: 99, key: "p", headers: { "h" => "1" }, outbox: true)
      Chaton.produce(kafka? ? "no-such-topic" : "no such topic", "lost", key: "large", outbox: true)
      produce("behind", key: "large")
      produce("other", key: "b")
    end
    assert_equal(%w[behind other], read(2).map { |one| one[:value] }.sort)
    @chaton.eventually("three are refused") { count("outbox_refused") == 3 && waiting.zero? }
    row = sql("SELECT convert_from(value, 'UTF8'), convert_from(key, 'UTF8'), partition, headers::text, why " \
              "FROM chaton.outbox_refused WHERE partition IS NOT NULL")
    assert_match(/\Athere is none\|p\|99\|.*\|.*(no 99|Unknown partition)/, row)
    assert_match(/outbox: the log refuses \d rows, which are in chaton.outbox_refused now/, @chaton.log)
    assert_match(/outbox: the log refuses 3 records/, @chaton.run_command("status").first)
    # It can be put back.
    sql("UPDATE chaton.outbox_refused SET partition=1 WHERE partition=99")
    sql("WITH back AS (DELETE FROM chaton.outbox_refused WHERE partition=1 RETURNING *) " \
        "INSERT INTO chaton.outbox(topic, partition, key, value, headers) " \
        "SELECT topic, partition, key, value, headers FROM back")
    assert_includes read(3).map { |one| one[:value] }, "there is none"
  end

  # The numbers of transactions have another order than the commits of those that have waited for each other.
  def test_a_row_that_waits_for_a_transaction_holds_up_what_was_committed_behind_it
    @kind = :local
    boot
    early, middle, late = Array.new(3) { session("BEGIN; SELECT pg_current_xact_id()") }
    insert("first", late)
    insert("second", early)
    looks = "SELECT 1 FROM pg_stat_activity, chaton.outbox WHERE application_name='chaton outbox' " \
            "AND query LIKE '%WITH gone%' AND query_start>at+interval '0.3s' LIMIT 1"
    @chaton.eventually("the relay has looked") { log.size(topic) == 1 || sql(looks) == "1" }
    middle.exec("COMMIT")
    assert_equal(%w[first second], read(2).map { |one| one[:value] })
  end

  def test_a_row_that_is_committed_long_after_later_ones_comes_before_those_behind_it
    @kind = :local
    boot
    early, late = Array.new(2) { session("BEGIN; SELECT pg_current_xact_id()") }
    Chaton.produce(topic, "first", key: "k", outbox: true, connection: late)
    insert("other", early, key: "other")
    read(1)
    # Reads begin behind the one that was handed over, some time after.
    teller = session("SELECT 1")
    150.times { teller.exec("NOTIFY chaton_outbox; SELECT pg_sleep(0.02)") }
    late.exec("COMMIT")
    insert("second", session("BEGIN"))
    20.times { teller.exec("NOTIFY chaton_outbox; SELECT pg_sleep(0.01)") }
    assert_equal(%w[first second], read(3).filter_map { |one| one[:value] if one[:key] == "k" })
  end

  def test_a_long_transaction_holds_rows_up_and_is_named
    @kind = :local
    boot(config: "admin { bind \"unix://admin.sock\" }")
    long = PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: @database, application_name: "a-report")
    long.exec("BEGIN; CREATE TABLE written(id int)")
    transaction { produce("late", key: "a") }
    @chaton.eventually("it is told", timeout_s: 60) do
      @chaton.log.match?(/outbox: rows wait for 10 s .*: the transaction of process #{long.backend_pid} \(a-report/)
    end
    assert_empty log.read(topic)
    assert_match(/outbox: 1 records wait, the oldest for \d+\.\d s/, @chaton.run_command("status").first)
    lag = AdminClient.new(@chaton.path("admin.sock")).get("/metrics").body[/^chaton_outbox_lag_seconds (\S+)/, 1]
    assert_operator lag.to_f, :>, 9
    long.exec("COMMIT")
    assert_equal(["late"], read(1).map { |one| one[:value] })
  ensure
    long&.close
  end

  # The relay dies, or its database does, between any two steps.
  each_log def test_kills_lose_nothing_and_keep_the_order_of_keys
    @server = @own_server = PostgresServer.new.start
    @database = @server.create_database
    boot(workers: "jobs: 2")
    sql("CREATE TABLE numbers AS SELECT key, 0 AS number FROM generate_series(0, #{KEYS - 1}) key")
    written = Hash.new(0)
    stop = false
    writers = Array.new(KEYS) { |key| Thread.new { write(key, written) until stop } }
    KILLS.times do |number|
      sleep 0.3 + (rand * 0.3)
      number.even? ? kill_workers(number) : restart_database
    end
    stop = true
    writers.each(&:join)
    @chaton.eventually("all rows are relayed", timeout_s: 90) { waiting.zero? }
    firsts = log.read(topic).uniq { |one| one[:headers].fetch("outbox-id") }.group_by { |one| one[:key] }
    assert_equal KEYS, firsts.size
    firsts.each do |key, records|
      values = records.sort_by { |one| one[:offset] }.map { |one| Integer(one[:value]) }
      assert_equal (1..written[key]).to_a, values, "of key #{key}"
    end
    assert_operator written.values.sum, :>, 100
  end

  # What was handed over is removed before a worker ends.
  each_log def test_a_stop_sends_nothing_twice
    boot
    transaction { 300.times { |number| produce(number.to_s, key: (number % 7).to_s) } }
    @chaton.eventually("some are there") { log.size(topic).positive? }
    assert_equal 0, @chaton.stop
    rest = waiting
    records = log.read(topic)
    assert_equal [300 - rest, 300 - rest], [records.size, records.uniq { |one| one[:value] }.size]
  end

  private

  def boot(workers: "jobs: 1", **options)
    create(partitions: 4)
    url = @server.url(@database)
    options[:config] = "jobs { store #{url.dump} }\n#{options[:config]}"
    @chaton = boot_streams("", topics: "", workers: workers, **options)
    use(url)
  end

  def use(url)
    Chaton::Jobs.configure { |config| config.store url }
    Chaton::Streams.use(Chaton::Config.load({ config_file: "-", broker: broker }, env: {}))
    ActiveRecord::Base.establish_connection(address)
    # The tables are there now.
    Chaton::Jobs.client.native.stats
  end

  # Transactions, until the database crashes.
  def write(key, written)
    PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: @database) do |pg|
      pg.set_notice_processor { |_| nil }
      50.times do
        pg.transaction do
          number = pg.exec("UPDATE numbers SET number=number+1 WHERE key=#{key} RETURNING number").getvalue(0, 0)
          Chaton.produce(topic, number, key: key.to_s, outbox: true, connection: pg)
        end
        written[key.to_s] += 1
      end
    end
  rescue PG::Error
    # A COMMIT whose answer was lost may have happened.
    found = sql("SELECT number FROM numbers WHERE key=#{key}") until found
    written[key.to_s] = Integer(found)
  end

  # The one that relays, another one, or both.
  def kill_workers(number) = @chaton.workers.sample((number % 4 / 2) + 1).each { |pid| Process.kill(:KILL, pid) }

  def restart_database
    @server.kill
    @server.start
  end

  # @return [PG::Connection]
  def session(sql)
    pg = PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: @database)
    (@sessions ||= []) << pg
    pg.tap { pg.exec(sql) }
  end

  # Stores a record, and commits.
  def insert(value, session, key: "k")
    Chaton.produce(topic, value, key: key, outbox: true, connection: session)
    session.exec("COMMIT")
  end

  def produce(value, key:) = Chaton.produce(topic, value, key: key, outbox: true)

  # @return [Array<Hash>] the records, once there are so many
  def read(count)
    @chaton.eventually("#{count} records", timeout_s: 60) { log.size(topic) >= count }
    records = log.read(topic)
    assert_equal count, records.size
    records
  end

  def address
    { adapter: "postgresql", host: @server.dir, username: PostgresServer::USER, database: @database }
  end

  def transaction(...) = ActiveRecord::Base.transaction(...)
  def sql(text) = @server.query(text, database: @database)
  def count(table) = Integer(sql("SELECT count(*) FROM chaton.#{table}"))
  def waiting = count("outbox")
end
