# frozen_string_literal: true

require_relative "jobs_case"

# What a worker had started is read by its parent, however it ended.
class JobsLedgerTest < Minitest::Test
  include JobsCase

  def test_is_empty_at_first
    ledger = Chaton::Native::InFlightTable.new(2, 4)
    assert_equal 2, ledger.size
    assert_nil ledger.identity(1)
    assert_empty ledger.started(1)
  end

  def test_is_opened_by_its_descriptor
    ledger = Chaton::Native::InFlightTable.new(3, 4)
    assert_equal 3, Chaton::Native::InFlightTable.open(ledger.fileno, 4).size
  end

  def test_what_is_no_ledger_is_refused
    File.open(__FILE__) do |file|
      error = assert_raises(Chaton::Error) { Chaton::Native::InFlightTable.open(file.fileno, 4) }
      assert_match(/is no ledger of 4 threads/, error.message)
    end
  end

  def test_a_slot_that_does_not_exist_is_named
    ledger = Chaton::Native::InFlightTable.new(2, 4)
    %i[identity started clear].each do |name|
      error = assert_raises(IndexError) { ledger.public_send(name, 2) }
      assert_equal "the ledger has 2 slots, asked for 2", error.message
    end
  end

  def test_what_a_child_ran_when_it_was_killed
    ledger = Chaton::Native::InFlightTable.new(2, 4)
    reader, writer = IO.pipe
    pid = fork do
      run_two_and_end_one(ledger) { |*ran| writer.write(JSON.generate(ran)) }
      writer.close
      Process.kill(:KILL, Process.pid)
    end
    writer.close
    identity, ticket, jid = JSON.parse(reader.read)
    Process.wait(pid)
    assert_equal identity, ledger.identity(0)
    assert_equal([[ticket, jid]], ledger.started(0).map { |entry| entry.first(2) })
    ledger.clear(0)
    assert_empty ledger.started(0)
    assert_nil ledger.identity(0)
  end

  private

  def run_two_and_end_one(ledger)
    native_pool = Chaton::Native::Pool.new(JobsEngineCase::HUB, Chaton::Native::Scoreboard.new(1), nil)
    seats = Array.new(2) { native_pool.enter }
    settings = { **store_settings, **JobsEngineCase::ENGINE }
    engine = Chaton::Native::Jobs.start(native_pool, ledger, settings)
    client.push_args("q", head, [[1], [2]], nil)
    first, second = seats.map(&:take)
    first.ack
    yield engine.identity, second.ticket, second.jid
  end
end
