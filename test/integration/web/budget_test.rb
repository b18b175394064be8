# frozen_string_literal: true

require "test_helper"
require "support/http2_frames"
require "support/process_figures"
require "support/tls_server"

# What clients make a worker hold.
class BudgetTest < Minitest::Test
  include ServerTest
  include TlsServer

  PAGES = <<~RUBY
    run ->(env) { [200, { "content-type" => "text/plain" }, [env["PATH_INFO"] == "/" ? "hello" : "x" * 1_000_000]] }
  RUBY
  CONNECTIONS = 12
  STREAMS = 40
  # 128 MiB are held in memory; the rest is garbage of the application and what is on its way to files.
  KIB_MAX = 320 * 1024

  def test_answers_that_nobody_takes
    server = boot(rackup: PAGES, config: "workers 0")
    assert_equal "hello", server.get("/").body
    before = ProcessFigures.resident_kib(server.pid)
    clients = Array.new(CONNECTIONS) { Http2Frames.new(server.port).tap { |client| client.get("/large", STREAMS) } }
    server.eventually("the answers are in memory and files") do
      web(server)["spooled_bytes"] > (CONNECTIONS * STREAMS * 1_000_000) - (300 << 20)
    end
    assert_operator ProcessFigures.field(server.pid, "VmHWM"), :<, before + KIB_MAX
    assert_equal "hello", server.get("/").body
    assert_equal 1_000_000, server.get("/large").body.bytesize
    clients.each(&:close)
    server.eventually("nothing is held") { web(server).values_at("held_bytes", "spooled_bytes") == [0, 0] }
    assert_equal 0, server.stop
  end

  # A byte in 50 ms is less than 240 a second.
  def test_an_answer_that_is_taken_byte_by_byte
    server = serve("workers 0\nweb { write_timeout_s 0.5 }", rackup: PAGES)
    client = Http2Frames.new(port(server), tls: @tls.context)
    client.get("/large")
    taking = Thread.new { loop { sleep(0.05).then { client.open_window(1, 1) } } }
    frames = Enumerator.produce { client.next_frame }
    # Data comes before the reset.
    assert_includes frames.take_while { |frame| frame != [Http2Frames::RESET, 1] }, [Http2Frames::DATA, 1]
    taking.kill
    assert_equal 0, server.stop
  end

  private

  def web(server) = server.status["workload"]["web"]
end
