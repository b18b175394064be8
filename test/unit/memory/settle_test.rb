# frozen_string_literal: true

require "test_helper"
require "stringio"
require "chaton/config"
require "chaton/memory/settle"
require "chaton/telemetry/log"
require "tmpdir"

class SettleTest < Minitest::Test
  # A collector that records its calls.
  class FakeGC
    attr_reader :calls

    def initialize = @calls = []
    def start(**) = @calls << :start
    def stat = GC.stat
  end

  class Compacting < FakeGC
    def compact = @calls << :compact
  end

  # As on systems with another page size.
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

  COMPACT = "memory { compact true }\n"

  def test_objects_are_compacted_and_made_old
    gc = Compacting.new
    settle("workers 2\n#{COMPACT}", gc: gc)
    assert_equal %i[start compact start start], gc.calls
    facts = /memory settled  ms=\d+ live_slots=\d+ old_objects=\d+ heap_pages_before=\d+ heap_pages=\d+ compact=on$/
    assert_match(facts, @output.string)
  end

  def test_objects_are_made_old_where_compaction_is_not_available
    [FakeGC.new, Refusing.new].each do |gc|
      settle("workers 2\n#{COMPACT}", gc: gc)
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

  def test_without_forks_objects_are_not_compacted
    gc = Compacting.new
    settle("workers 0\nenvironment \"production\"\n#{COMPACT}", gc: gc)
    assert_equal %i[start] * 4, gc.calls
    assert_match(/no workers are forked/, @output.string)
  end

  def test_process_warmup_is_used_where_available
    gc = Compacting.new
    settle("workers 2\n#{COMPACT}", gc: gc, process: Warming.new(gc.calls))
    assert_equal %i[start warmup], gc.calls
    assert_match(/compact=on$/, @output.string)
    settle("workers 2\n#{COMPACT}", gc: gc = FakeGC.new, process: Warming.new(gc.calls))
    assert_equal %i[start warmup], gc.calls
    assert_match(/not on this platform/, @output.string)
  end

  def test_development_without_workers_is_left_alone
    gc = Compacting.new
    settle("workers 0\nenvironment \"development\"", gc: gc)
    assert_empty gc.calls
    assert_empty @output.string
  end

  def test_the_reading_is_kept_for_the_next_start
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
    log = Chaton::Telemetry::Log.new(format: :human, level: :debug, io: @output)
    Chaton::Memory::Settle.new(@plan, log: log, gc: gc, process: process).call
  end
end
