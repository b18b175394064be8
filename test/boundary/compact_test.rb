# frozen_string_literal: true

require_relative "jobs_case"
require_relative "workload_case"
require "support/moving"

# Compaction may move any Ruby object that the extension refers to, at any time.
class CompactTest < Minitest::Test
  include Moving
  include WorkloadCase

  ROUNDS = STRESS ? 2 : 8
  HEADERS = { "accept" => "text/plain", "x-made-up" => "yes", "cookie" => "a=1",
              "x-forwarded-for" => "10.0.0.1" }.freeze
  SHOWN = %w[REQUEST_METHOD PATH_INFO QUERY_STRING SERVER_NAME SERVER_PORT SERVER_PROTOCOL HTTP_ACCEPT HTTP_X_MADE_UP
             HTTP_COOKIE HTTP_X_FORWARDED_FOR rack.url_scheme rack.multithread].freeze
  EXPECTED = %w[GET /p q=1 127.0.0.1 80 HTTP/1.1 text/plain yes a=1 10.0.0.1 http].freeze
  LARGE = 200_000

  def test_between_requests
    port = serve { |env| show(env) }
    connect(port) do |client|
      ROUNDS.times do
        relaxed { move }
        assert_equal EXPECTED, shown(relaxed { client.get("/p?q=1", headers: HEADERS) })
      end
    end
  end

  def test_while_the_application_has_a_request
    port = serve do |env|
      move
      show(env).tap { move }
    end
    ROUNDS.times { assert_equal EXPECTED, shown(get(port, "/p?q=1", headers: HEADERS)) }
  end

  def test_with_automatic_compaction
    port = serve do |env|
      GC.start
      show(env)
    end
    moving { ROUNDS.times { assert_equal EXPECTED, shown(get(port, "/p?q=1", headers: HEADERS)) } }
  end

  def test_request_bodies
    text = "0123456789" * 1_000
    [{}, { body_memory_bytes_max: 1_000 }].each do |web|
      port = serve(web: web) do |env|
        move
        input = env["rack.input"]
        part = input.read(4_000)
        move
        [200, {}, [part, input.read]]
      end
      answer = exchange(port, "POST / HTTP/1.0\r\nContent-Length: #{text.size}\r\n\r\n#{text}")
      assert_equal text, answer.split("\r\n\r\n", 2).last
    end
  end

  # The IO thread writes a large String without copying while the collector runs.
  def test_response_bodies
    parts = ["a" * LARGE, "b", "c" * LARGE]
    bodies = { "/array" => -> { parts.map(&:dup) },
               "/each" => -> { parts.each.lazy.map { |part| part.dup.tap { move } } } }
    port = serve { |env| [200, {}, bodies.fetch(env["PATH_INFO"]).call] }
    bodies.each_key do |path|
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write("GET #{path} HTTP/1.0\r\n\r\n")
      first = relaxed { socket.readpartial(1_000) }
      move
      assert_equal parts.join, (first + relaxed { socket.read }).split("\r\n\r\n", 2).last
    ensure
      socket&.close
    end
  end

  def test_callbacks_after_the_reply_and_a_hijacked_connection
    called = Queue.new
    port = serve do |env|
      env["rack.after_reply"] << -> { called << env["PATH_INFO"] }
      move
      next [200, {}, []] if env["PATH_INFO"] == "/after"

      env["rack.hijack"].call.tap { |io| io.write("taken") }.close
      [200, {}, []]
    end
    assert_equal 200, get(port, "/after").status
    assert_equal "/after", relaxed { called.pop }
    assert_equal "taken", exchange(port, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
  end

  private

  def show(env) = [200, { "content-type" => "text/plain" }, [env.values_at(*SHOWN).join("\n")]]

  def shown(response) = response.body.lines(chomp: true).first(EXPECTED.size)
end

class CompactJobsTest < Minitest::Test
  include JobsEngineCase
  include Moving

  ARGUMENTS = [7, "text", { "a" => [1.5, nil], "list" => Array.new(50, &:to_s) }].freeze

  def test_jobs_and_their_arguments
    names = Array.new(3) do |number|
      move
      job = run_one([*ARGUMENTS, number], "Mail")
      move
      arguments = stressed { job.args }
      move
      assert_equal [*ARGUMENTS, number], arguments
      assert_same arguments, job.args
      job.ack
      [job.class_name, job.queue]
    end
    assert_equal [%w[Mail q]], names.uniq
    names.transpose.each { |same| assert_equal 1, same.map(&:object_id).uniq.size }
    assert_idle
  end
end
