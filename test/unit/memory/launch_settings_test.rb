# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "json"
require "tmpdir"
require "chaton/config"
require "chaton/memory/launch_settings"

class LaunchSettingsTest < Minitest::Test
  Memory = Chaton::Memory
  READING = { live_slots: 450_000, old_objects: 440_000, pools: [[40, 450_000]] }.freeze

  # An allocator with a given choice.
  Chosen = Struct.new(:choice)

  def setup
    @root = Dir.mktmpdir("chaton-launch-settings")
    Dir.mkdir("#{@root}/tmp")
    @cache = Memory::HeapCache.new(root: @root, work: "web", env: {})
  end

  def teardown = FileUtils.remove_entry(@root)

  def launch_settings(env = {}, path: "/lib/libjemalloc.so.2", variables: { "MALLOC_CONF" => "narenas:1" },
                      loads: true, before_start: nil, **settings)
    settings = { eden: :auto, longlife: :settle, collect: :between, limit: :auto, allocator: :auto, **settings }
    choice = Memory::Allocator::Choice.new(name: "jemalloc", path: path, env: variables, shape: "one arena", why: "so",
                                           missed: false)
    settings = Chaton::Config::MemorySettings.new(**settings)
    Memory::LaunchSettings.new(settings, cache: @cache, env: env, loads: loads, before_start: before_start,
                                         allocator: Chosen.new(choice))
  end

  def test_a_first_start_gets_the_allocator
    launch_settings = launch_settings()
    assert_equal({ "LD_PRELOAD" => "/lib/libjemalloc.so.2", "MALLOC_CONF" => "narenas:1" }, launch_settings.variables)
    assert_equal [nil, nil], [launch_settings.age, launch_settings.problem]
    assert_equal %w[info debug], launch_settings.log_lines.map(&:first)
    assert_match(/first start of this bundle/, launch_settings.log_lines.last[1])
  end

  def test_the_next_start_gets_heap_sizes_too
    @cache.write(READING)
    launch_settings = launch_settings()
    names = launch_settings.variables.keys.grep(/\ARUBY_GC_/)
    assert_includes names, "RUBY_GC_MALLOC_LIMIT"
    assert_match(/\A\d seconds\z/, launch_settings.age)
    assert_match(/sized by the last start, \d seconds ago; eden 4.0 MiB/, launch_settings.log_lines.last[1])
  end

  def test_a_supervisor_collects_as_any_small_program
    @cache.write(READING)
    with, without = [true, false].map { |loads| launch_settings(loads: loads).variables.keys }
    assert_equal with.grep(/_INIT_/), with - without
    refute_empty with - without unless RUBY_VERSION.start_with?("3.2.")
    assert_includes without, "RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO"
  end

  def test_other_preloaded_libraries_stay_behind_ours
    variables = launch_settings({ "LD_PRELOAD" => "a.so b.so:c.so" }).variables
    assert_equal "/lib/libjemalloc.so.2:a.so:b.so:c.so", variables["LD_PRELOAD"]
    refute_includes launch_settings({}, path: nil).variables, "LD_PRELOAD"
  end

  def test_the_library_that_frees_bound_threads_is_preloaded_once
    preloaded = ->(*given) { launch_settings(*given, before_start: "/lib/before.so").variables["LD_PRELOAD"] }
    assert_equal "/lib/libjemalloc.so.2:/lib/before.so:a.so", preloaded[{ "LD_PRELOAD" => "a.so" }]
    assert_equal "/lib/libjemalloc.so.2:/lib/before.so", preloaded[{ "LD_PRELOAD" => "/lib/before.so" }]
    assert_equal({ "LD_PRELOAD" => "/lib/before.so" },
                 launch_settings({}, path: nil, variables: {}, before_start: "/lib/before.so").variables)
    again = { "LD_PRELOAD" => "/lib/jemalloc.so:/lib/before.so" }
    assert_empty launch_settings(again, path: nil, variables: {}, before_start: "/lib/before.so").variables
  end

  def test_it_is_needed_where_threads_may_be_bound
    needs = lambda do |source|
      plan = Chaton::Config.load({ config_file: "-", **source }, env: {}, root: @root)
      !Chaton::CpuAffinity.library(plan).nil?
    end
    assert_equal Chaton::RubyRelease.gvl_events? && Etc.nprocessors > 1, needs[{}]
    refute needs[{ cpu_affinity: false }]
  end

  def test_the_users_variables_are_kept
    @cache.write(READING)
    launch_settings = launch_settings({ "RUBY_GC_MALLOC_LIMIT" => "1", "RUBY_GC_HEAP_GROWTH_FACTOR" => "1.1" })
    refute_includes launch_settings.variables, "RUBY_GC_MALLOC_LIMIT"
    assert_includes launch_settings.variables, "RUBY_GC_MALLOC_LIMIT_MAX"
    assert_equal "RUBY_GC_MALLOC_LIMIT RUBY_GC_HEAP_GROWTH_FACTOR", launch_settings.log_lines.last[2][:left_alone]
  end

  def test_without_a_library_and_a_reading_nothing_is_set
    assert_empty launch_settings({}, path: nil, variables: {}).variables
  end

  def test_the_age_of_a_reading
    { 10 => "10 seconds", 600 => "10 minutes", 10_000 => "2 hours", 900_000 => "10 days" }.each do |seconds, age|
      @cache.write(READING)
      path = @cache.paths.first
      File.write(path, JSON.generate(JSON.parse(File.read(path)).merge("taken_at" => Time.now.to_i - seconds)))
      assert_equal age, launch_settings.age
    end
  end

  def test_an_unusable_reading_is_reported
    @cache.write(READING)
    File.write(@cache.paths.first, "{")
    assert_match(/heap: .*cannot be read: .*ParserError; Ruby's own sizes/, launch_settings.log_lines.last[1])
  end

  def test_the_settings_as_a_hash
    @cache.write(READING)
    shown = JSON.parse(JSON.generate(launch_settings({ "RUBY_GC_MALLOC_LIMIT" => "1" }).to_h))
    assert_equal ["jemalloc", ["RUBY_GC_MALLOC_LIMIT"]], [shown["allocator"]["name"], shown["left_alone"]]
    assert_kind_of Integer, shown["heap"]["taken_at"]
  end
end
