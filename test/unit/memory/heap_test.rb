# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require "chaton/memory/heap"
require "chaton/memory/heap_reading"

class HeapTest < Minitest::Test
  MIB = 1 << 20
  ONE_POOL = { live_slots: 450_000, old_objects: 440_000, pools: [[40, 450_000]] }.freeze
  POOLS = { live_slots: 300_000, old_objects: 250_000,
            pools: [[40, 200_000], [80, 60_000], [160, 30_000], [320, 8_000], [640, 2_000]] }.freeze
  RATIOS = %w[MIN GOAL MAX].map { |name| "RUBY_GC_HEAP_FREE_SLOTS_#{name}_RATIO" }.freeze
  MALLOC = %w[RUBY_GC_MALLOC_LIMIT RUBY_GC_MALLOC_LIMIT_MAX].freeze
  FULL = %w[RUBY_GC_HEAP_OLDOBJECT_LIMIT_FACTOR RUBY_GC_OLDMALLOC_LIMIT RUBY_GC_OLDMALLOC_LIMIT_MAX].freeze

  def shape(version, reading, eden: :auto, growth: 1.0, limit: nil)
    Chaton::Memory::Heap.shape(version, Chaton::Memory::Heap::Intent.new(eden: eden, growth: growth, limit: limit),
                               reading)
  end

  # Which names a version knows: docs/CONFIGURATION.md promises the intent, not the names.
  def test_names_by_version
    by_pool = Array.new(5) { |index| "RUBY_GC_HEAP_#{index}_INIT_SLOTS" }
    { "3.1.2" => [ONE_POOL, ["RUBY_GC_HEAP_INIT_SLOTS"], {}], "3.2.8" => [POOLS, [], {}],
      "3.3.8" => [POOLS, by_pool, {}],
      "3.4.1" => [POOLS, by_pool, { rgengc_allow_full_mark: false }],
      "4.0.0" => [POOLS, by_pool, { rgengc_allow_full_mark: false }],
      "4.1.0" => [POOLS, ["RUBY_GC_HEAP_INIT_BYTES"], { rgengc_allow_full_mark: false }] }
      .each do |version, (reading, names, config)|
        shape = shape(version, reading)
        assert_equal (names + RATIOS + MALLOC + FULL).sort, shape.env.keys.sort, version
        assert_equal config, shape.gc_config, version
        assert(shape.env.values.all?(/\A\d+(\.\d+)?\z/), version)
      end
  end

  def test_one_pool_holds_the_live_objects_and_eden
    assert_equal (450_000 + (4 * MIB / 40.0)).ceil.to_s, shape("3.1.2", ONE_POOL).env["RUBY_GC_HEAP_INIT_SLOTS"]
    assert_equal "1350000", shape("3.1.2", ONE_POOL, eden: 2.0).env["RUBY_GC_HEAP_INIT_SLOTS"]
    assert_equal (450_000 + (64 * MIB / 40.0)).ceil.to_s,
                 shape("3.1.2", ONE_POOL, eden: 64 * MIB).env["RUBY_GC_HEAP_INIT_SLOTS"]
  end

  # In proportion to the live objects of each; hardly used ones keep Ruby's own start.
  def test_each_pool_has_its_own_size
    env = shape("3.3.8", POOLS, eden: 2.0).env
    assert_equal %w[600000 180000 90000 24000 10000], Array.new(5) { |index| env["RUBY_GC_HEAP_#{index}_INIT_SLOTS"] }
  end

  def test_one_number_for_all_pools_is_that_of_the_largest
    assert_equal (200_000 * 40 * 3).to_s, shape("4.1.0", POOLS, eden: 2.0).env["RUBY_GC_HEAP_INIT_BYTES"]
    small = { **POOLS, pools: [[40, 9]] }
    assert_equal (2560 << 10).to_s, shape("4.1.0", small, eden: 2.0).env["RUBY_GC_HEAP_INIT_BYTES"]
  end

  def test_the_default_eden_begins_small_and_below_the_ceiling
    [1_000, 450_000, 20_000_000].each do |live|
      assert_equal 4 * MIB, shape("3.1.2", { **ONE_POOL, pools: [[40, live]] }).eden_bytes
    end
    assert_equal 2 * MIB, shape("3.1.2", ONE_POOL, limit: 8 * MIB).eden_bytes, "a quarter of the ceiling"
    assert_equal 4 * MIB, shape("3.1.2", ONE_POOL, limit: 1 << 30).eden_bytes
    assert_equal 1 * MIB, shape("3.1.2", ONE_POOL, limit: 2 * MIB).eden_bytes
    assert_equal 64 * MIB, shape("3.1.2", ONE_POOL, eden: 64 * MIB, limit: 64 * MIB).eden_bytes, "chosen is chosen"
  end

  # They keep the proportion when the application grows; Ruby ignores them in another order.
  def test_ratios_of_free_slots
    assert_equal %w[0.3 0.6 0.8], shape("3.1.2", ONE_POOL, eden: 1.5).env.values_at(*RATIOS)
    assert_equal %w[0.094 0.189 0.87], shape("3.1.2", ONE_POOL).env.values_at(*RATIOS), "eden may grow"
    [0.1, 1.0, 30.0].each do |eden|
      ratios = shape("3.1.2", ONE_POOL, eden: eden).env.values_at(*RATIOS).map(&:to_f)
      assert_equal ratios.sort, ratios
      assert(ratios.all? { |ratio| ratio.between?(0.02, 0.95) }, ratios.inspect)
    end
  end

  def test_limits_of_malloc
    assert_equal [32 * MIB, 64 * MIB].map(&:to_s), shape("3.1.2", { **ONE_POOL, pools: [[40, 1000]] })
      .env.values_at(*MALLOC)
    assert_equal %w[45000000 90000000], shape("3.1.2", ONE_POOL, eden: 2.5).env.values_at(*MALLOC)
    assert_equal [128 * MIB, 256 * MIB].map(&:to_s), shape("3.1.2", ONE_POOL, eden: 50.0).env.values_at(*MALLOC)
    assert_equal [4 * MIB, 8 * MIB].map(&:to_s), shape("3.1.2", ONE_POOL, eden: 4 * MIB).env.values_at(*MALLOC)
  end

  def test_full_collections
    assert_equal %w[4.0 180000000 360000000], shape("3.1.2", ONE_POOL, eden: 2.5).env.values_at(*FULL)
    assert_equal "3.0", shape("3.1.2", ONE_POOL, growth: 0.5).env[FULL.first]
    shape = shape("3.4.1", POOLS, growth: nil)
    assert_equal [[nil, nil, nil], {}], [shape.env.values_at(*FULL), shape.gc_config], "Ruby decides"
  end

  def test_the_reasons_are_given
    why = shape("3.4.1", POOLS).why.join("\n")
    ["eden 4.0 MiB: to begin with; 300,000 objects, 20.4 MiB, are alive", "16 % of the slots",
     "32.0 MiB outside of slots", "4.0 times as many", "GC.config(rgengc_allow_full_mark: false)"]
      .each { |part| assert_includes why, part }
    assert_match(/3.2 has no setting/, shape("3.2.1", POOLS).why.join)
    assert_match(/3.0 times the live bytes/, shape("3.1.2", ONE_POOL, eden: 3.0).why.first)
  end

  def test_the_first_start_sets_no_variables
    shape = shape("3.1.2", nil)
    assert_empty shape.env
    assert_match(/the first start of an application/, shape.why.last)
  end

  def test_the_intent_is_taken_from_the_settings
    plan = ->(**changes) { Chaton::Config::MemorySettings.new(eden: :auto, longlife: :settle, **changes) }
    intent = ->(**changes) { Chaton::Memory::Heap::Intent.of(plan.call(**changes)).to_a }
    assert_equal [:auto, 1.0, nil], intent.call(limit: :auto, collect: :between)
    assert_equal [1.5, nil, 5], intent.call(limit: 5, collect: :off), "nothing is found there"
    assert_equal [:auto, nil, nil], intent.call(limit: :off, longlife: :off, collect: :between)
  end

  # A Ruby with the variables has the intended heap: so many objects of the smallest size fit into it before the next
  # collection.
  def test_this_ruby_uses_the_variables
    reading = Chaton::Memory::HeapReading.take
    env = shape(RUBY_VERSION, reading, eden: 3.0).env
    made, malloc = IO.popen([env, RbConfig.ruby, "-e", <<~RUBY], &:read).split.map(&:to_i)
      # Ruby applies the limit of malloc in the first collection.
      GC.start
      count = GC.count
      made = 0
      while GC.count == count
        Object.new
        made += 1
      end
      print made, " ", GC.stat(:malloc_increase_bytes_limit)
    RUBY
    assert_equal env["RUBY_GC_MALLOC_LIMIT"].to_i, malloc
    # The objects of this larger program would fit, too.
    assert_operator made, :>=, reading[:pools].first.last * 2.9 if env.keys.any?(/INIT/)
  end
end
