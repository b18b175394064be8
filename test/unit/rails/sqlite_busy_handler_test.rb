# frozen_string_literal: true

require "test_helper"
require "active_record"
require "active_record/connection_adapters/sqlite3_adapter"
require "chaton/rails"
require "tmpdir"

# Two threads of one process write to the same SQLite database. Rails 8 has a handler of its own that does the same.
class SqliteBusyHandlerTest < Minitest::Test
  TIMEOUT_MS = 2_000

  class Connected < ActiveRecord::Base
    self.abstract_class = true
  end

  def setup
    super
    @dir = Dir.mktmpdir
    connect(timeout_ms: TIMEOUT_MS)
    connection.execute("CREATE TABLE notes (text TEXT)")
  end

  def teardown
    Connected.remove_connection
    FileUtils.rm_rf(@dir) if @dir
    super
  end

  def test_a_writer_that_waits_lets_the_owner_of_the_lock_commit
    owner = lock { sleep 0.05 }
    connection.execute("INSERT INTO notes VALUES ('second')")
    owner.join
    assert_equal 1, connection.select_value("SELECT count(*) FROM notes")
  end

  def test_the_wait_ends_after_the_time_out
    connect(timeout_ms: 50)
    done = Queue.new
    owner = lock { done.pop }
    error = assert_raises(ActiveRecord::StatementInvalid) { connection.execute("INSERT INTO notes VALUES ('x')") }
    assert_match(/BusyException/, error.message)
    assert_operator owner, :alive?
  ensure
    done << true
    owner.join
  end

  private

  def connect(timeout_ms:)
    Connected.establish_connection(adapter: "sqlite3", database: "#{@dir}/test.db", timeout: timeout_ms, pool: 5)
  end

  # @return [Thread] which holds the database's lock until the block ends
  def lock
    locked = Queue.new
    owner = Thread.new do
      connection.execute("BEGIN IMMEDIATE")
      locked << true
      yield
      connection.execute("COMMIT")
    end
    locked.pop
    owner
  end

  def connection = Connected.connection
end
