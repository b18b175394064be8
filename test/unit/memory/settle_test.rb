# frozen_string_literal: true

require "test_helper"
require "stringio"
require "chaton/config"
require "chaton/memory/settle"
require "chaton/telemetry/log"
require "tmpdir"

class SettleTest < Minitest::Test
  # A collector that notes what it is asked for.
  class FakeGC
    attr_reader :calls

    def initialize = @calls = []
    def start(**) = @calls << :start
    def stat = GC.stat
  end

  class Compacting < FakeGC
    def compact = @calls << :compact
  end

  # So it is where pages of the operating system are of another size.
  class Refusing < FakeGC
    def compact = raise(NotImplementedError, "compact() function is unimplemented on this machine")
  end

  # Process of Ruby 3.3 and later.
  class Warming
    def initialize(calls) = @calls = calls

    def warmup
      @calls << :warmup
      true
    end
  end

  def test_moves_objects_together_and_makes_them_old
    gc = Compacting.new
    settle("workers 2", gc: gc)
    assert_equal %i[start compact start start], gc.calls
    facts = /memory settled  ms=\d+ live_slots=\d+ old_objects=\d+ heap_pages_before=\d+ heap_pages=\d+ compact=on /
    assert_match(facts, @output.string)
  end

  def test_what_cannot_be_moved_is_only_made_old
    [FakeGC.new, Refusing.new].each do |gc|
      settle("workers 2", gc: gc)
      assert_equal %i[start] * 4, gc.calls
      assert_match(/compact="off \(not on this platform\)"/, @output.string)
    end
  end

  def test_compaction_can_be_switched_off
    gc = Compacting.new
    settle("workers 2\nmemory { compact false }", gc: gc, process: Warming.new(gc.calls))
    assert_equal %i[start] * 4, gc.calls
    assert_match(/compact="off \(memory \{ compact false \}\)"/, @output.string)
  end

  def test_without_forks_nothing_is_moved
    gc = Compacting.new
    settle("workers 0\nenvironment \"production\"", gc: gc)
    assert_equal %i[start] * 4, gc.calls
    assert_match(/no workers are forked/, @output.string)
  end

  def test_ruby_does_it_where_it_can
    gc = Compacting.new
    settle("workers 2", gc: gc, process: Warming.new(gc.calls))
    assert_equal %i[start warmup], gc.calls
    assert_match(/compact=on /, @output.string)
    settle("workers 2", gc: gc = FakeGC.new, process: Warming.new(gc.calls))
    assert_equal %i[start warmup], gc.calls
    assert_match(/not on this platform/, @output.string)
  end

  def test_development_without_workers_is_left_alone
    gc = Compacting.new
    settle("workers 0\nenvironment \"development\"", gc: gc)
    assert_empty gc.calls
    assert_empty @output.string
  end

  def test_keeps_the_reading_for_the_next_start
    settle("workers 2", gc: GC)
    entry = Chaton::Memory::HeapCache.of(@plan, env: {}).read
    assert_operator entry.reading.fetch(:live_slots), :>, 10_000
  end

  def setup
    @dir = Dir.mktmpdir("chaton-settle")
    Dir.mkdir(File.join(@dir, "tmp"))
  end

  def teardown
    FileUtils.remove_entry(@dir)
  end

  private

  def settle(config, gc:, process: Object.new)
    @output = StringIO.new
    File.write(File.join(@dir, "chaton.rb"), config)
    @plan = Dir.chdir(@dir) { Chaton::Config.load({ config_file: "chaton.rb" }, env: {}) }
    log = Chaton::Telemetry::Log.new(format: :human, level: :info, io: @output)
    Chaton::Memory::Settle.new(@plan, log: log, gc: gc, process: process).call
  end
end
