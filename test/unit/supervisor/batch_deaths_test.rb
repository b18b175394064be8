# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/job_recovery"
require "chaton/native"
require_relative "fakes"

class BatchDeathsTest < Minitest::Test
  include SupervisorFakes

  # What workers noted before they died, and the deaths.
  class FakeTable
    attr_reader :kept, :deaths

    def initialize
      @started = Hash.new { |all, slot| all[slot] = [] }
      @kept = []
      @deaths = []
    end

    def start(slot, batch) = @started[slot] << [@started[slot].size + 1, batch, 0]
    def started(slot) = @started[slot]
    def clear(slot) = @started.delete(slot)
    def keep(slot) = @kept << slot
    def add(batch, cause) = @deaths << [batch, cause]
  end

  def setup
    @table = FakeTable.new
    batch_deaths = ->(log) { Chaton::Supervisor::BatchDeaths.new(@table, @table, log: log) }
    build_worker_set(workers: 3, roles: [[:streams], [:streams], [:web]], batch_deaths: batch_deaths)
    @children = @worker_set.children.dup
    @children.each { |child| make_ready(child) }
  end

  def die(child)
    child.define_singleton_method(:pid) { 77 }
    assert @worker_set.ended(77, @killed ||= killed)
  end

  def killed
    pid = fork { sleep }
    Process.kill("KILL", pid)
    Process.wait2(pid).last
  end

  def test_the_batches_of_a_worker_that_crashed_are_counted
    slot = @children[0].scoreboard_slot
    @table.start(slot, "a 0 1 9")
    @table.start(slot, "a 1 5 0")
    die(@children[0])
    assert_equal [["a 0 1 9", "SIGKILL"], ["a 1 5 0", "SIGKILL"]], @table.deaths
    assert_empty @table.started(slot)
    die(@children[2])
    assert_equal 2, @table.deaths.size
  end

  def test_the_batches_of_a_worker_that_was_ended_for_what_it_did_are_counted
    @table.start(@children[0].scoreboard_slot, "hangs")
    @table.start(@children[1].scoreboard_slot, "grows")
    @children[0].kill
    die(@children[0])
    @worker_set.blame_work(@children[1], "memory (96 MiB)")
    assert_equal [@children[1].scoreboard_slot], @table.kept
    assert_equal ["grows", "memory (96 MiB)"], @table.deaths.last, "before another worker gets the partition"
    @children[1].stop_now(0)
    die(@children[1])
    assert_match(/\Ano sign of life/, @table.deaths[0].last)
    assert_equal 2, @table.deaths.size
  end

  def test_stops_that_were_asked_for_do_not_count
    @table.start(@children[0].scoreboard_slot, "slow")
    @children[0].stop(0)
    die(@children[0])
    # It did not exit in time.
    @table.start(@children[1].scoreboard_slot, "slower")
    @children[1].stop(0)
    @children[1].kill
    die(@children[1])
    assert_empty @table.deaths
    assert_empty @table.started(@children[0].scoreboard_slot)
  end
end
