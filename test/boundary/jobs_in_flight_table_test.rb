# frozen_string_literal: true

require_relative "jobs_case"

# What a worker had started is read by its parent, however it ended.
class JobsInFlightTableTest < Minitest::Test
  include JobsCase

  def test_the_table_is_empty_at_first
    table = Chaton::Native::InFlightTable.new(2, 4)
    assert_equal 2, table.size
    assert_nil table.identity(1)
    assert_empty table.started(1)
  end

  def test_the_table_can_be_opened_by_its_descriptor
    table = Chaton::Native::InFlightTable.new(3, 4)
    assert_equal 3, Chaton::Native::InFlightTable.open(table.fileno, 4).size
  end

  def test_other_files_are_refused
    File.open(__FILE__) do |file|
      error = assert_raises(Chaton::Error) { Chaton::Native::InFlightTable.open(file.fileno, 4) }
      assert_match(/in-flight table: it was made by another version of Chaton/, error.message)
    end
  end

  def test_an_unknown_slot_is_refused
    table = Chaton::Native::InFlightTable.new(2, 4)
    %i[identity started clear].each do |name|
      error = assert_raises(IndexError) { table.public_send(name, 2) }
      assert_equal "the in-flight table has 2 slots, asked for 2", error.message
    end
  end

  def test_the_table_names_what_a_killed_child_ran
    table = Chaton::Native::InFlightTable.new(2, 4)
    reader, writer = IO.pipe
    store_settings # so that this process removes the store
    pid = fork do
      run_two_and_end_one(table) { |*ran| writer.write(JSON.generate(ran)) }
      writer.close
      Process.kill(:KILL, Process.pid)
    end
    writer.close
    identity, ticket, jid = JSON.parse(reader.read)
    Process.wait(pid)
    assert_equal identity, table.identity(0)
    assert_equal([[ticket, jid]], table.started(0).map { |entry| entry.first(2) })
    table.clear(0)
    assert_empty table.started(0)
    assert_nil table.identity(0)
  end

  private

  def run_two_and_end_one(table)
    native_pool = new_pool
    taken = Queue.new
    # Each runs its job until the process ends.
    2.times { Thread.new { native_pool.enter.then { |thread| taken << thread.take and sleep } } }
    engine = Chaton::Native::Jobs.start(native_pool, table, [], false).tap(&:resume)
    client.push_args("q", head, [[1], [2]], nil)
    first, second = Array.new(2) { taken.pop }
    first.ack
    yield engine.identity, second.ticket, second.jid
  end
end
