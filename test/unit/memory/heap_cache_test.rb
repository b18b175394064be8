# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "json"
require "stringio"
require "tmpdir"
require "chaton/config"
require "chaton/memory/heap_cache"
require "chaton/telemetry/log"

class HeapCacheTest < Minitest::Test
  READING = { live_slots: 5000, old_objects: 4000, heap_pages: 30, slots_per_page: 409,
              pools: [[40, 5000]] }.freeze

  def setup
    @root = File.realpath(Dir.mktmpdir("chaton-heap"))
    @env = { "HOME" => "#{@root}/home" }
    Dir.mkdir("#{@root}/tmp")
  end

  def teardown = FileUtils.remove_entry(@root)

  def cache(**changes) = Chaton::Memory::HeapCache.new(root: @root, work: "web", env: @env, **changes)

  def path = cache.paths.first

  def test_a_reading_is_written_and_read
    assert cache.write(READING)
    entry = cache.read
    assert_equal READING, entry.reading
    assert_in_delta Time.now.to_i, entry.taken_at, 5
    assert_equal ["#{@root}/tmp/cache/chaton/heap-web-ruby#{RUBY_VERSION}.json"], Dir["#{@root}/**/heap*"]
  end

  def test_an_eden_that_was_found_is_kept_with_the_reading
    cache.keep_eden("web", 64 << 20)
    assert_nil cache.read, "without a reading there is nothing to add it to"
    cache.write(READING)
    cache.keep_eden("web", 64 << 20)
    cache.keep_eden("jobs", 8 << 20)
    assert_equal({ **READING, eden: { web: 64 << 20, jobs: 8 << 20 } }, cache.read.reading)
    Dir.mkdir("#{@root}/later")
    other = Chaton::Memory::HeapCache.new(root: "#{@root}/later", work: "web", env: @env)
    other.write(READING)
    Dir.mkdir("#{@root}/later/tmp")
    other.keep_eden("web", 8 << 20)
    assert_equal({ web: 8 << 20 }, other.read.reading[:eden])
    assert_empty Dir.children("#{@root}/later/tmp"), "it stays where the reading is"
    [{ web: -1 }, { web: "64M" }, { web: 1 << 60 }, [1], (1..9).to_h { |n| ["r#{n}", 1 << 20] }].each do |eden|
      cache.write({ **READING, eden: eden })
      assert_nil cache.read, eden.inspect
    end
  end

  def test_a_first_start_has_no_reading
    assert_nil cache.read
    assert_nil cache.tap(&:read).problem
  end

  def test_a_reading_is_used_for_the_same_ruby_bundle_and_work_only
    cache.write(READING)
    assert_nil cache(ruby: "9.9.9").read
    assert_nil cache(work: "jobs").read
    File.write("#{@root}/Gemfile.lock", "GEM\n")
    other = cache
    assert_nil other.read
    assert_match(/another bundle/, other.problem)
    cache.write(READING)
    assert cache.read
    File.write("#{@root}/Gemfile.lock", "GEN\n")
    assert_nil cache.read
    @env["BUNDLE_GEMFILE"] = "#{@root}/gems.rb"
    File.write("#{@root}/gems.locked", "GEM\n")
    cache.write(READING)
    File.delete("#{@root}/gems.locked")
    assert_nil cache.read
  end

  def test_invalid_files_are_rejected
    FileUtils.mkdir_p(File.dirname(path))
    sound = JSON.parse(cache.tap { |one| one.write(READING) }.then { File.read(path) })
    { "" => /cannot be read/, "{" => /cannot be read/, "[]" => /no reading/, "\xFF" => /cannot be read|no reading/,
      "x" * 70_000 => /too large/, JSON.generate(sound.merge("format" => 2)) => /no reading/,
      JSON.generate(sound.merge("reading" => nil)) => /impossible figures/,
      JSON.generate(sound.merge("taken_at" => "now")) => /impossible figures/ }
      .each { |text, problem| assert_rejected(text, problem) }
    [{ "live_slots" => -1 }, { "pools" => [] }, { "pools" => [[40, 1 << 60]] }, { "pools" => [40] },
     { "old_objects" => 1.5 }].each do |change|
      text = JSON.generate(sound.merge("reading" => sound["reading"].merge(change)))
      assert_rejected(text, /impossible figures/)
    end
  end

  def test_figures_larger_than_the_machine_are_rejected
    cache.write(READING.merge(pools: [[40, 100_000], [640, 25_000]]))
    assert cache.read
    assert cache(machine: 40 << 20).read
    small = cache(machine: 38 << 20)
    assert_nil small.read
    assert_match(/impossible figures/, small.problem)
    assert_operator Chaton::Memory::HeapCache.machine, :>, 1 << 28
  end

  def test_the_home_directory_is_used_without_a_tmp_directory
    Dir.rmdir("#{@root}/tmp")
    assert cache.write(READING)
    kept = Dir.glob("#{@root}/**/heap*", File::FNM_DOTMATCH)
    assert_match(%r{\A#{@root}/home/.cache/chaton/\h{16}/heap-web}, kept.first)
    assert cache.read
    @env["XDG_CACHE_HOME"] = "#{@root}/cache"
    refute cache.read
    assert cache.write(READING)
    assert_equal 1, Dir["#{@root}/cache/chaton/*/heap*"].size
  end

  # A path below a file cannot be created, also by root, as on a read-only file system.
  def test_an_unwritable_place_is_reported
    File.write("#{@root}/tmp/cache", "a file")
    @env = { "HOME" => "#{@root}/tmp/cache" }
    written = cache
    refute written.write(READING)
    assert_match(/Not a directory|File exists/, written.problem)
    assert_nil cache.read
    @env = {}
    Dir.mktmpdir { |root| refute cache(root: root).write(READING) }
  end

  def test_storing_logs_a_failure_once_and_does_not_raise
    out = StringIO.new
    log = Chaton::Telemetry::Log.new(io: out)
    plan = Chaton::Config.load({}, env: {}, root: @root)
    File.write("#{@root}/tmp/cache", "a file")
    home = ENV.to_h.slice("HOME", "XDG_CACHE_HOME")
    ENV.update("HOME" => "#{@root}/tmp/cache", "XDG_CACHE_HOME" => nil)
    Chaton::Memory::HeapCache.store(plan, READING, log: log)
    assert_equal 1, out.string.lines.size
    assert_match(/INFO  the heap.s sizes cannot be kept/, out.string)
  ensure
    ENV.update("HOME" => home["HOME"], "XDG_CACHE_HOME" => home["XDG_CACHE_HOME"])
  end

  def test_roles_are_part_of_the_name
    plan = Chaton::Config.load({ workers: "2" }, env: {}, root: @root)
    assert_match(/heap-web-ruby/, Chaton::Memory::HeapCache.of(plan, env: @env).paths.first)
    plan = Chaton::Config.load({ jobs: true, web: true }, env: {}, root: @root)
    assert_match(/heap-jobs-web-ruby/, Chaton::Memory::HeapCache.of(plan, env: @env).paths.first)
  end

  private

  def assert_rejected(text, problem)
    File.binwrite(path, text)
    cache = cache()
    assert_nil cache.read, text[0, 80]
    assert_match problem, cache.problem
  end
end
