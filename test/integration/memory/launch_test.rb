# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "json"
require "tmpdir"
require "chaton/memory/heap_cache"
require "chaton/memory/library"
require "support/bundle"
require "support/server"

# The process executes itself again to set its allocator and heap sizes.
class LaunchIntegrationTest < Minitest::Test
  include ServerTest

  # Answers with what the process and what it starts know of our variables.
  APP = <<~'RUBY'
    require "json"
    OURS = /\A(?:LD_PRELOAD|MALLOC_|RUBY_GC_|CHATON_LAUNCHED)/
    # Ruby makes the pages of the heap's first size as it needs them.
    pages = GC.stat.values_at(:heap_allocated_pages, :heap_allocatable_pages).compact.sum
    slots = pages * GC::INTERNAL_CONSTANTS.fetch(:HEAP_PAGE_OBJ_LIMIT, 0)
    run(lambda do |_env|
      started = IO.popen(["env", "-0"], &:read).split("\0").map { |line| line.split("=", 2) }
      facts = { own: ENV.to_h.select { |name, _| name.match?(OURS) }, slots: slots,
                child: started.select { |name, _| name.match?(OURS) }.to_h,
                original: defined?(Bundler) && Bundler.with_original_env { ENV.keys.grep(OURS) } }
      [200, { "content-type" => "application/json" }, [JSON.generate(facts)]]
    end)
  RUBY
  BUNDLED = File.expand_path("../../../lib/chaton/#{Chaton::Memory::Library::BUNDLED}", __dir__)
  ROOT = File.expand_path("../../..", __dir__)
  ALLOCATOR_LINE = /allocator: /

  def teardown
    super
    [@libraries, @lives].compact.each { |folder| FileUtils.remove_entry(folder) }
  end

  # A directory to look for allocators in, with our own jemalloc under the usual name.
  def libraries(*names)
    @libraries = File.realpath(Dir.mktmpdir("chaton-libraries"))
    names.each { |name| FileUtils.cp(BUNDLED, "#{@libraries}/#{name}") }
    { "CHATON_ALLOCATOR_PATH" => @libraries }
  end

  def with_jemalloc = libraries("libjemalloc.so.2")

  # The library that frees bound threads goes before the user's.
  def preloaded(theirs)
    plan = Chaton::Config.load({ config_file: "-" }, env: {})
    [Chaton::CpuAffinity.library(plan), theirs].compact.join(":")
  end

  def facts(server) = JSON.parse(server.get.body)

  def maps(pid) = File.read("/proc/#{pid}/maps")

  # Ruby writes the process title over what the kernel knows of the environment, so each life says it itself, before
  # any of our code runs in it.
  def serve(env, **options, &block)
    @lives = Dir.mktmpdir("chaton-lives")
    File.write("#{@lives}/note.rb", <<~RUBY)
      require "json"
      File.write("#{@lives}/env", JSON.generate(ENV.to_h) + "\n", mode: "a") if $PROGRAM_NAME == #{Server::EXE.inspect}
    RUBY
    boot(rackup: APP, config: "workers 1", env: { **env, "RUBYOPT" => "-r#{@lives}/note.rb" }, **options, &block)
  end

  # @return [Array<Hash>] what the process was executed with, each time
  def lives = File.readlines("#{@lives}/env").map { |line| JSON.parse(line) }

  def write_reading(server)
    # Since Ruby 3.2 there are five sizes of slots.
    pools = GC.respond_to?(:stat_heap) ? Array.new(5) { |index| [40 << index, 150_000 >> index] } : [[40, 300_000]]
    reading = { ruby: RUBY_VERSION, live_slots: pools.sum(&:last), old_objects: 250_000, pools: pools }
    FileUtils.mkdir_p(server.path("tmp"))
    Chaton::Memory::HeapCache.new(root: server.dir, work: "web").write(reading)
  end

  def assert_preloaded(server)
    [server.pid, *server.workers].each { |pid| assert_includes maps(pid), "#{@libraries}/libjemalloc.so.2" }
    assert_equal [{}, {}], facts(server).values_at("own", "child")
  end

  def test_supervisor_and_workers_use_the_allocator_and_subprocesses_do_not_inherit_it
    server = serve(with_jemalloc)
    assert_preloaded(server)
    assert_match(%r{INFO  allocator: jemalloc 5.3.1 \(#{@libraries}/libjemalloc.so.2\), one arena; chosen because},
                 server.log)
    assert_equal 1, server.log.scan(ALLOCATOR_LINE).size
    assert_equal 2, lives.size
    assert_match(/narenas:1,background_thread:false/, lives.last["MALLOC_CONF"])
    assert_equal server.pid, JSON.parse(lives.last["CHATON_LAUNCHED"])["pid"], "it kept its pid"
    assert_equal 0, server.stop
  end

  def test_without_any_library_the_c_library_is_tuned
    server = serve(libraries)
    assert_match(/allocator: glibc, 2 arenas; chosen because there is no usable jemalloc in #{@libraries}/, server.log)
    assert_equal [nil, "2"], lives.map { |env| env["MALLOC_ARENA_MAX"] }
    refute_match(/jemalloc/, maps(server.pid))
    assert_equal [{}, {}], facts(server).values_at("own", "child")
    assert_equal 0, server.stop
  end

  def test_a_library_that_cannot_be_loaded_is_skipped
    env = libraries
    File.write("#{@libraries}/libjemalloc.so.2", "no library")
    server = boot(config: "workers 0", env: env)
    assert_match(/libjemalloc.so.2 cannot be used: it is not a shared library/, server.log)
    assert_equal 0, server.stop
  end

  def test_a_preloaded_jemalloc_is_kept
    server = serve({ **libraries, "LD_PRELOAD" => BUNDLED })
    assert_match(/allocator: jemalloc, one arena; chosen because LD_PRELOAD names it already/, server.log)
    assert_equal preloaded(BUNDLED), lives.last["LD_PRELOAD"]
    assert_equal [{ "LD_PRELOAD" => BUNDLED }] * 2, facts(server).values_at("own", "child")
    assert_equal 0, server.stop
  end

  def test_another_preloaded_library_stays_with_ours
    theirs = maps(Process.pid)[%r{/\S+/libm[.-]\S*}]
    env = { **with_jemalloc, "LD_PRELOAD" => theirs, "MALLOC_CONF" => "narenas:3",
                             "RUBY_GC_MALLOC_LIMIT" => "20000000" }
    server = serve(env)
    assert_equal ["#{@libraries}/libjemalloc.so.2:#{preloaded(theirs)}", "narenas:3"],
                 lives.last.values_at("LD_PRELOAD", "MALLOC_CONF")
    assert_match(/with your MALLOC_CONF/, server.log)
    expected = env.except("CHATON_ALLOCATOR_PATH")
    assert_equal [expected, expected], facts(server).values_at("own", "child")
    assert_equal 0, server.stop
  end

  def test_one_process_in_development_is_left_alone
    server = serve({ **with_jemalloc, "RACK_ENV" => "development" }, args: %w[-w 0 --log-level debug])
    assert_match(/allocator and heap sizes are unchanged: a single process in development/, server.log)
    refute_includes maps(server.pid), @libraries
    assert_equal 1, lives.size
    assert_equal 0, server.stop
  end

  def test_the_heap_is_sized_by_the_last_start
    server = serve(with_jemalloc) { |one| write_reading(one) }
    assert_match(/INFO  heap: sized by the last start, \d+ seconds ago; eden 4.0 MiB: to begin with/, server.log)
    assert_includes lives.last, "RUBY_GC_MALLOC_LIMIT"
    facts = facts(server)
    assert_equal [{}, {}], facts.values_at("own", "child")
    assert_equal 0, server.stop
  end

  # Ruby 3.1 makes them at once, which a process does only where it loads the application itself.
  def test_the_slots_of_the_first_size
    { "workers 0" => true, "workers 1\npreload false" => true, "workers 1" => false }.each do |config, first|
      server = boot(rackup: APP, config: config) { |one| write_reading(one) }
      assert_equal first, facts(server)["slots"] >= 400_000 unless GC.respond_to?(:stat_heap)
      assert_equal 0, server.stop
    end
  end

  # Below a file nothing can be written, as on a read-only file system.
  def test_nowhere_to_keep_a_reading
    env = { **with_jemalloc, "HOME" => "/dev/null", "XDG_CACHE_HOME" => "/dev/null/cache" }
    server = boot(rackup: APP, config: "workers 1", env: env) { |one| one.write("tmp/cache", "a file") }
    assert_includes maps(server.pid), @libraries
    assert_equal 1, server.log.scan("the heap's sizes cannot be kept").size
    assert_equal 200, server.get.status
    assert_equal 0, server.stop
  end

  def test_full_and_phased_restarts_keep_it
    server = boot(rackup: APP, config: "workers 1", env: with_jemalloc)
    before = server.workers
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    after = server.workers
    assert_empty before & after
    assert_preloaded(server)
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 3)
    assert_preloaded(server)
    assert_match(/heap: sized by the last start/, server.log, "the preloader, or the server in its second life")
    assert_equal 3, server.log.scan(ALLOCATOR_LINE).size, "the server, its preloader, the server again"
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  # `bundle exec` either executes a Ruby or goes on as the program; then its title is all the kernel knows.
  def test_under_bundler
    env = with_jemalloc
    [[Server::EXE], [RbConfig.ruby, "-W1", Server::EXE]].each do |program|
      server = Server.new(rackup: APP, config: "workers 1", env: env)
      server.write("Gemfile", "gem \"rack\"\ngem \"chaton\", path: #{ROOT.inspect}\n")
      server.define_singleton_method(:command) { [Bundle.command, "exec", *program] }
      (@servers ||= []) << server
      server.start.ready
      assert_preloaded(server)
      assert_empty facts(server)["original"], "Bundler's copy of the environment"
      assert_equal 0, server.stop
    end
  end
end
