# frozen_string_literal: true

require "test_helper"
require "net/http"
require "support/native_gems" unless NeedsGems::MISSING.intersect?(%w[nokogiri pg sqlite3])
require "support/server"

# The heap is put in order before the forks, and objects of native extensions are moved by it, too: what was made at
# boot and what is made in a worker goes on working, also where objects are moved while it serves.
class SettleIntegrationTest < Minitest::Test
  include ServerTest

  RAILS = File.expand_path("../../../examples/rails/config.ru", __dir__)
  COMPACT = "workers 2\nlog_level :debug\nmemory { compact true }"
  AUTO_COMPACT = "#{COMPACT}\non_worker_boot { GC.auto_compact = true }".freeze
  NUMBERS = 40

  GEMS = <<~RUBY.freeze
    $LOAD_PATH.unshift "#{File.expand_path("../..", __dir__)}"
    require "support/native_gems"

    run(lambda do |env|
      GC.compact if env["QUERY_STRING"] == "compact"
      _, name, number = env["PATH_INFO"].split("/")
      [200, { "x-moved" => GC.stat(:total_moved_objects).to_s }, [NativeGems.answer(name, number.to_i)]]
    end)
  RUBY

  # Boot leaves gaps: every second object survives. Objects of requests lie in the gaps or elsewhere.
  LEFTOVERS = <<~RUBY
    KEPT = Array.new(400_000) { Object.new }.each_slice(2).map(&:first)

    run(lambda do |_env|
      private_kib = -> { File.read("/proc/self/smaps_rollup")[/^Private_Dirty:\\s+(\\d+)/, 1].to_i }
      GC.disable
      before = private_kib.call
      made = Array.new(400_000) { Object.new }
      # What these objects have made private, not what a worker has of its own anyway.
      [200, {}, [(private_kib.call - before).to_s, " ", made.size.to_s]]
    end)
  RUBY

  def test_extensions_work_after_compaction_before_the_forks
    needs_gems "nokogiri", "pg", "sqlite3"
    server = boot(rackup: GEMS, config: COMPACT)
    assert_match(/memory settled .* compact=on$/, server.log)
    ask_all(server, [*NativeGems::NAMES, "callbacks"])
  end

  def test_extensions_work_with_compaction_while_serving
    needs_gems "nokogiri", "pg", "sqlite3"
    server = boot(rackup: GEMS, config: AUTO_COMPACT)
    moved = ask_all(server, NativeGems::NAMES, "?compact")
    assert_operator moved.last, :>, moved.first
  end

  def test_rails_works_after_compaction
    needs_gems "nokogiri", "sqlite3"
    [COMPACT, AUTO_COMPACT].each do |config|
      server = boot_rails(config)
      workers = server.workers
      8.times { |number| assert_equal "201", post_message(server, "message #{number}").code }
      assert_equal 8, server.get("/").body.scan(/<li>message \d</).size
      30.times { assert_equal 8, JSON.parse(server.get("/messages.json").body).size }
      assert_equal workers, server.workers
      refute_match(/\[BUG\]|ERROR/, server.log)
    end
  end

  def test_it_can_be_switched_off
    server = boot(config: "workers 1\nlog_level :debug\nmemory { compact false }")
    assert_match(/memory settled .* compact="off \(memory { compact false }\)"/, server.log)
    assert_equal "hello", server.get("/").body
  end

  def test_after_an_early_crash_the_code_is_loaded_without_compaction
    server = boot(config: COMPACT)
    assert_match(/memory settled .* compact=on$/, server.log)
    server.signal("SEGV", server.workers.first)
    server.wait_line(/may not support heap compaction. The code is loaded again without it/)
    server.wait_line(/memory settled .* compact="off \(memory { compact false }\)"/)
    server.wait_line(/phased restart done/)
    assert_equal "hello", server.get("/").body
    # The next generations, too.
    server.signal("USR1")
    server.wait_line(/memory settled .* compact="off/, count: 2)
  end

  def test_without_compaction_the_rest_of_settling_is_done
    server = boot(config: <<~RUBY)
      workers 1
      log_level :debug
      memory { compact true }
      GC.define_singleton_method(:compact) { raise NotImplementedError, "compact() is unimplemented on this machine" }
      Process.singleton_class.undef_method(:warmup) if Process.respond_to?(:warmup)
    RUBY
    assert_match(/memory settled .* compact="off \(not on this platform\)"/, server.log)
    assert_equal "hello", server.get("/").body
  end

  def test_a_new_generation_is_settled_too
    server = boot(config: "workers 1\nlog_level :debug")
    server.signal("USR1")
    server.wait_line(/memory settled/, count: 2)
  end

  def test_workers_allocate_no_objects_between_those_of_boot
    moved, as_it_was = [true, false].map do |compact|
      server = boot(rackup: LEFTOVERS, config: "workers 1\nmemory { compact #{compact} }")
      server.get("/").body.to_i
    end
    assert_operator moved, :<, 0.75 * as_it_was
  end

  def time_limit_s = 150

  def teardown
    super
    FileUtils.remove_entry(@scratch) if @scratch
  end

  private

  # @return [Array<Integer>] how many objects had been moved when each was answered
  def ask_all(server, names, query = "")
    workers = server.workers
    moved = names.product((0...NUMBERS).to_a).map do |name, number|
      answer = server.get("/#{name}/#{number}#{query}")
      assert_equal NativeGems.answer(name, number), answer.body.force_encoding("UTF-8")
      answer.headers["x-moved"].to_i
    end
    assert_equal workers, server.workers
    refute_match(/\[BUG\]|ERROR/, server.log)
    moved
  end

  def boot_rails(config)
    @scratch ||= Dir.mktmpdir("chaton-rails")
    database = File.join(@scratch, "app#{@servers&.size}.sqlite3")
    boot(rackup: nil, args: [RAILS], config: config,
         env: { "RAILS_ENV" => "production", "DATABASE_URL" => "sqlite3:#{database}" })
  end

  def post_message(server, text)
    Net::HTTP.post(URI("http://127.0.0.1:#{server.port}/messages.json"), JSON.generate(message: { text: text }),
                   "content-type" => "application/json")
  end
end
