# frozen_string_literal: true

require "test_helper"
require "support/process_figures"
require "support/raw_client"
require "support/server"

# Failures of an application in a real server: the right response, a log line that names the request, and the server
# goes on.
class AppMisbehaviourTest < Minitest::Test
  include ServerTest

  def setup = needs_gems("fiddle")

  # `/native` stays in C without letting go of the GVL; the pipe that it reads is written to by the test.
  APP = <<~RUBY
    require "fiddle"
    NATIVE_OPEN = Fiddle::Function.new(
      Fiddle::Handle::DEFAULT["open"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true
    )
    CPU = ("a" * 28) + "b"
    misbehave = {
      "/raise" => -> { raise IOError, "broken pipe to the moon" },
      "/throw" => -> { throw :nowhere },
      "/exit" => -> { exit 3 },
      "/signal" => -> { raise SignalException, "TERM" },
      "/exit!" => -> { exit! 3 },
      "/abort" => -> { abort "and good night" },
      "/kill" => -> { Thread.current.kill },
      "/recurse" => -> { misbehave.fetch("/recurse").call },
      "/nil" => -> {},
      "/number" => -> { 5 },
      "/short" => -> { [200] },
      "/no_body" => -> { [200, {}, nil] },
      "/no_headers" => -> { [200, nil, []] },
      "/status" => -> { ["much", {}, []] },
      "/low_status" => -> { [42, {}, []] },
      "/newline" => -> { [200, { "x-evil" => "a\\r\\nSet-Cookie: b" }, []] },
      "/nul" => -> { [200, { "x-evil" => "a\\0b" }, []] },
      "/name" => -> { [200, { "x evil" => "a" }, []] },
      "/chunk" => -> { [200, {}, [7]] },
      "/each" => -> { [200, {}, Enumerator.new { |out| out << "begun"; raise "broke off" }] },
      "/sleep" => -> { sleep 0.01 until File.exist?("open") },
      "/native" => -> { NATIVE_OPEN.call("fifo", 0) }
    }
    run(lambda do |env|
      action = misbehave[env["PATH_INFO"]]
      action ? action.call : [200, { "content-type" => "text/plain" }, ["fine"]]
    end)
  RUBY

  # path => what the log must say beside the request
  ANSWERED_500 = {
    "/raise" => /broken pipe to the moon/, "/throw" => /uncaught throw :nowhere/, "/exit" => /SystemExit/,
    "/signal" => /SIGTERM/, "/abort" => /SystemExit.*and good night/, "/kill" => /the thread was killed/,
    "/recurse" => /stack level too deep/, "/nil" => /a Rack application answers/,
    "/number" => /a Rack application answers/, "/short" => /a Rack application answers/,
    "/no_body" => /a Rack application answers/, "/no_headers" => /a Rack application answers/,
    "/status" => /is not a number/, "/low_status" => /42/, "/newline" => /x-evil/, "/nul" => /x-evil/,
    "/name" => /x evil/, "/chunk" => /Integer/
  }.freeze

  MODES = { "without workers" => "workers 0", "with workers" => "workers 2" }.freeze

  MODES.each do |mode, workers|
    name = mode.tr(" ", "_")

    define_method(:"test_failures_are_answered_and_named_#{name}") do
      server = boot(rackup: APP, config: workers)
      ANSWERED_500.each do |path, logged|
        assert_equal 500, server.get(path).status, path
        server.wait_line(/request="GET #{path}"/)
        assert_match logged, server.log, path
        assert_equal "fine", server.get.body, "after #{path}"
      end
      refute_match(/worker died/, server.log)
      assert_equal 0, server.stop
    end

    define_method(:"test_a_body_that_breaks_off_#{name}") do
      server = boot(rackup: APP, config: workers)
      answer = RawClient.exchange(server.port, "GET /each HTTP/1.1\r\nHost: h\r\n\r\n")
      assert_match(/begun/, answer)
      refute answer.end_with?("0\r\n\r\n"), "a client must be able to tell"
      server.wait_line(%r{request="GET /each".*broke off})
      assert_equal "fine", server.get.body
      assert_equal 0, server.stop
    end

    define_method(:"test_a_late_request_is_answered_503_with_its_backtrace_in_the_log_#{name}") do
      server = boot(rackup: APP, config: "#{workers}\nweb { timeout 2 }")
      assert_equal [503, "1"], late(server, "/sleep")
      line = server.wait_line(/request is late: answered 503/)
      assert_match(%r{what="GET /sleep".*config\.ru:\d+}, line)
      assert_equal "fine", server.get.body
      server.write("open", "")
      assert_equal 0, server.stop
    end

    define_method(:"test_a_request_that_holds_the_gvl_is_reported_without_ruby_#{name}") do
      server = boot(rackup: APP, config: "#{workers}\nweb { timeout 2 }")
      File.mkfifo(server.path("fifo"))
      assert_equal [503, "1"], late(server, "/native")
      assert_match(%r{GET /native has been running for \d+ ms in thread \d+ \(tid \d+\); no backtrace},
                   server.wait_line(/late: /))
      assert_match(/CPU \d+ ms, sleeps in \w/, server.log)
      # Its other end: the call returns.
      File.open(server.path("fifo"), "w").close
      assert_equal "fine", server.get.body
      assert_equal 0, server.stop
    end
  end

  NO_STRING_IO = <<~RUBY
    StringIO.prepend(Module.new { def initialize(text = "", *) = text.start_with?("no") ? raise("no input") : super })
    run ->(_) { [200, {}, ["fine"]] }
  RUBY

  def test_a_body_that_ruby_can_not_wrap_is_answered_500_and_its_memory_freed
    server = boot(rackup: NO_STRING_IO, config: "workers 0")
    before = ProcessFigures.resident_kib(server.pid)
    body = "no" * 100_000
    RawClient.open(server.port) do |client|
      400.times do
        client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: #{body.size}\r\n\r\n#{body}")
        assert_equal 500, client.read_response.status
      end
    end
    grown_kib = ProcessFigures.resident_kib(server.pid) - before
    assert_operator grown_kib, :<, 50_000, "the bodies of 78,000 KiB must not stay"
    assert_match(/no input/, server.log)
  end

  # In single mode there is nobody to go on.
  def test_a_worker_that_leaves_at_once_is_replaced
    server = boot(rackup: APP, config: "workers 2")
    before = server.workers
    assert_raises(EOFError, Errno::ECONNRESET) { server.get("/exit!") }
    server.wait_line(/worker died.*3/)
    server.wait_line(/worker ready/, count: 3)
    assert_equal 1, (server.workers & before).size
    assert_equal 2, server.workers.size
    assert_equal "fine", server.get.body
    assert_equal 0, server.stop
  end

  private

  def late(server, path)
    answer = server.get(path)
    [answer.status, answer.headers["retry-after"]]
  end
end
