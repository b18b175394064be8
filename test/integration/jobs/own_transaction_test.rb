# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"
require "active_record"
require "active_job"
require "chaton"
require "chaton/core"

# With a store in the application's PostgreSQL, jobs are stored by the application's own transactions.
class OwnTransactionTest < Minitest::Test
  include JobsTest

  class Order < ActiveRecord::Base; end

  class Ship
    include Chaton::Job
    def perform(*); end
  end

  class Once
    include Chaton::Job
    options unique_for: 60
    def perform(*); end
  end

  class Mail < ActiveJob::Base
    self.logger = nil
    def perform(*); end
  end

  # Stores an order and a job in one transaction, and waits to be killed: before the COMMIT, or after it.
  CHILD = <<~RUBY
    require "active_record"
    require "chaton"
    require "chaton/core"
    class Note
      include Chaton::Job
    end
    $stdout.sync = true
    address, url, where, id = ARGV
    Chaton::Jobs.configure { |config| config.store url }
    ActiveRecord::Base.establish_connection(JSON.parse(address))
    ActiveRecord::Base.transaction do
      ActiveRecord::Base.connection.execute("INSERT INTO orders(name) VALUES ('" + id + "')")
      Note.perform_async(id)
      (puts "there"; sleep) if where == "before"
    end
    puts "there"
    sleep
  RUBY

  # Kills before a COMMIT, and as many after one.
  KILLS = Soak.number(5, 100)

  def time_limit_s = Soak.number(60, 600)

  def setup
    super
    @server = PostgresServer.shared
    @database = @server.create_database
    @url = @server.url(@database)
    Chaton::Jobs.configure { |config| config.store @url }
    connect(@database)
    sql("CREATE TABLE orders(id serial PRIMARY KEY, name text)")
    # The tables are made by the first push.
    Ship.perform_async("first")
  end

  def teardown
    ActiveRecord::Base.remove_connection
    Chaton::Jobs.swap_client(nil)
    super
  end

  def test_the_commit_stores_rows_and_jobs_together
    odd = "it's \\ \" $1 %s \u0000 é"
    transaction do
      Order.create!(name: "a")
      assert_match(/\A\h{24}\z/, Ship.perform_async(odd))
      Ship.perform_bulk([[1], [2]])
      Ship.perform_in(60, 3)
      assert_equal [0, ["first"]], [orders, args]
    end
    assert_equal [1, ["first", odd, 1, 2, 3]], [orders, args]
    assert_equal "1", sql("SELECT count(*) FROM chaton.jobs WHERE place=2")
  end

  def test_a_rollback_takes_jobs_and_locks_back
    transaction do
      Ship.perform_async("dropped")
      assert Once.perform_async(1)
      raise ActiveRecord::Rollback
    end
    transaction do
      Ship.perform_async("kept")
      transaction(requires_new: true) do
        Ship.perform_async("dropped")
        raise ActiveRecord::Rollback
      end
      assert Once.perform_async(1), "its lock was taken back"
      assert_nil Once.perform_async(1)
    end
    assert_nil Once.perform_async(1)
    assert_equal ["first", "kept", 1], args
  end

  def test_a_transaction_waits_for_no_other_one
    other = PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: @database)
    other.exec("BEGIN")
    Ship.set(queue: "new", connection: other).perform_async("other")
    Once.set(connection: other).perform_async(1)
    transaction do
      sql("SET LOCAL lock_timeout='5s'")
      Ship.set(queue: "new").perform_async("here")
      assert_nil Once.perform_async(1), "somebody else is about to have the lock"
    end
    other.exec("COMMIT")
    assert_equal ["first", "other", 1, "here"], args
  ensure
    other&.close
  end

  def test_sequel
    require "sequel"
    sequel = Sequel.connect(adapter: "postgres", host: @server.dir, user: PostgresServer::USER, database: @database)
    sequel.transaction(rollback: :always) { Ship.set(connection: sequel).perform_async("dropped") }
    sequel.transaction do
      Ship.set(connection: sequel).perform_async("it's \\ ?")
      assert_equal ["first"], args
    end
    assert_equal ["first", "it's \\ ?"], args
    assert_match(/\A\h{24}\z/, Once.set(connection: sequel).perform_async(1))
    assert_nil Once.set(connection: sequel).perform_async(1)
  ensure
    sequel&.disconnect
  end

  def test_commits_of_pg_and_sequel_are_told
    require "sequel"
    pg, listener = Array.new(2) { PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: @database) }
    sequel = Sequel.connect(adapter: "postgres", host: @server.dir, user: PostgresServer::USER, database: @database)
    listener.exec("LISTEN chaton_jobs")
    pg.transaction { Ship.set(connection: pg, queue: "pg").perform_async(1) }
    assert_equal "pg", told(listener)
    sequel.transaction { Ship.set(connection: sequel, queue: "sequel").perform_async(1) }
    queue = told(listener) until queue == "sequel"
  ensure
    [pg, listener].each { |one| one&.close }
    sequel&.disconnect
  end

  def test_active_job
    ActiveJob::Base.queue_adapter = :chaton
    transaction do
      Mail.perform_later("dropped")
      raise ActiveRecord::Rollback
    end
    transaction { Mail.perform_later("kept") }
    assert_equal [["kept"]], args.drop(1).map { |data| data["arguments"] }
  end

  def test_a_store_in_another_database_gets_jobs_after_the_commit
    elsewhere = @server.create_database
    connect(elsewhere)
    transaction do
      Ship.perform_async("later")
      assert_equal ["first"], args
    end
    assert_equal %w[first later], args
    pg = PG.connect(host: @server.dir, user: PostgresServer::USER, dbname: elsewhere)
    error = assert_raises(Chaton::ConfigError) { Ship.set(connection: pg).perform_async(1) }
    assert_match(/connection: is not to the database of the store/, error.message)
  ensure
    pg&.close
  end

  def test_a_store_in_another_database_is_said_at_boot
    @store = @url
    of = lambda do |database|
      "require \"active_record\"\n" \
        "ActiveRecord::Base.establish_connection(JSON.parse(#{address(database).to_json.dump}))"
    end
    line = /ActiveRecord has no connection to the database of the jobs \(postgres:.*stored after the commit/
    server = boot_jobs(of.call(@server.create_database))
    server.wait_line(line)
    assert_match(line, server.check)
    refute_match(line, prepare_jobs(of.call(@database)).check)
  end

  def test_workers_are_woken_by_the_commit_and_see_its_rows
    @store = @url
    server = boot_jobs(<<~RUBY)
      require "pg"
      class OwnTransactionTest
        class Ship
          include Chaton::Job
          def perform(name)
            pg = PG.connect(host: #{@server.dir.dump}, user: "postgres", dbname: #{@database.dump})
            Recorder.note("\#{name}-sees-\#{pg.exec("SELECT count(*) FROM orders").getvalue(0, 0)}")
          ensure
            pg&.close
          end
        end
      end
    RUBY
    server.eventually("the job of setup has run") { server.record.ids.include?("first-sees-0") }
    5.times do |number|
      transaction do
        Order.create!(name: number.to_s)
        Ship.perform_async(number)
      end
      note = "#{number}-sees-#{number + 1}"
      server.eventually(note) { server.record.ids.include?(note) }
    end
    assert_equal 0, server.stop
  end

  def test_a_kill_before_the_commit_leaves_neither_and_one_after_it_both
    sql("DELETE FROM chaton.jobs")
    KILLS.times do |number|
      %w[before after].each { |where| killed(where, "#{where}#{number}") }
    end
    # Rows of a killed transaction are never visible.
    after = Array.new(KILLS) { |number| "after#{number}" }
    assert_equal [after, after], [args, sql("SELECT name FROM orders ORDER BY id").lines.map(&:chomp)]
  end

  private

  def killed(where, id)
    IO.popen([RbConfig.ruby, "-I", Server::LIB, "-e", CHILD, JSON.generate(address(@database)), @url, where,
              id]) do |child|
      assert_equal "there\n", child.gets
      Process.kill(:KILL, child.pid)
    end
  end

  # @return [String] the queue of which others are told next
  def told(listener)
    listener.wait_for_notify(WAIT_S) { |_, _, queue| return queue }
    flunk "nobody is told"
  end

  def connect(database) = ActiveRecord::Base.establish_connection(address(database))

  def address(database)
    { adapter: "postgresql", host: @server.dir, username: PostgresServer::USER, database: database }
  end

  def transaction(...) = ActiveRecord::Base.transaction(...)
  def sql(text) = @server.query(text, database: @database)
  def orders = Integer(sql("SELECT count(*) FROM orders"))

  # @return [Array] the first argument of each stored job
  def args
    sql("SELECT convert_from(payload, 'UTF8') FROM chaton.jobs ORDER BY id").lines
      .map { |line| JSON.parse(line)["args"].first }
  end
end
