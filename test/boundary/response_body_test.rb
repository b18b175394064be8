# frozen_string_literal: true

require_relative "counted_body"
require_relative "workload_case"
require "pathname"
require "rack"
require "tempfile"

# Bodies with more than one way to be read: which one is taken, and that each body is closed once.
class ResponseBodyTest < Minitest::Test
  include WorkloadCase

  def test_a_pathname_as_the_path_of_a_body
    with_file("f" * 1000) do |path|
      bodies = [CountedBody.new("not this"), CountedBody.new("not this")]
      bodies.each { |body| body.define_singleton_method(:to_path) { Pathname.new(path) } }
      port = serve { [200, {}, bodies.first] }
      assert_equal ["1000", "f" * 1000], get(port).then { |got| [got.headers["content-length"], got.body] }
      eventually { bodies.first.closed == 1 }
      ranged = serve { [206, { "content-range" => "bytes 0-999/1000" }, bodies.last] }
      assert_equal [206, "f" * 1000], get(ranged).then { |got| [got.status, got.body] }
    end
  end

  def test_a_path_whose_bytes_are_no_utf_8
    with_file("f" * 10, ["chaton\xFF".b, ""]) do |path|
      body = CountedBody.new("not this")
      body.define_singleton_method(:to_path) { path.b }
      assert_equal "f" * 10, get(serve { [200, {}, body] }).body
    end
  end

  def test_a_body_without_a_path_after_all
    assert_read_by_each(:to_path, [nil, "/nowhere/at/all", Dir.tmpdir])
  end

  def test_a_pipe_as_body
    port = serve { [200, {}, IO.popen(%w[echo piped])] }
    assert_equal "piped\n", get(port).body
  end

  # Rails' body answers so for `response_body = Enumerator.new { … }`.
  def test_a_body_whose_to_ary_answers_no_array
    assert_read_by_each(:to_ary, [nil, %w[not this].each, "not this", { not: "this" }])
  end

  def test_a_body_whose_to_ary_answers_an_array_is_closed_once
    body = CountedBody.new("not this")
    body.define_singleton_method(:to_ary) do
      # As the specification of Rack 3 wants it.
      close if Rack.release >= "3"
      %w[one two]
    end
    response = get(serve { [200, {}, body] })
    assert_equal %w[onetwo 6], [response.body, response.headers["content-length"]]
    eventually { body.closed == 1 }
  end

  def test_a_body_whose_to_ary_raises_is_closed
    body = CountedBody.new("not this")
    body.define_singleton_method(:to_ary) { raise "no Array" }
    assert_equal 500, get(serve { [200, {}, body] }).status
    eventually { body.closed == 1 && @output.string.include?("no Array") }
  end

  def test_a_body_with_each_and_call_is_read_by_each
    body = CountedBody.new("by each")
    body.define_singleton_method(:call) { |stream| stream.write("by call") && stream.close }
    assert_equal "by each", get(serve { [200, {}, body] }).body
    eventually { body.closed == 1 }
  end

  def test_a_streaming_body_is_closed_once
    closed = Queue.new
    body = lambda do |stream|
      stream.write("one", "two")
      2.times { stream.close }
    end
    body.define_singleton_method(:close) { closed << :once }
    assert_equal "onetwo", get(serve { [200, {}, body] }).body
    assert_equal :once, closed.pop
    assert_empty closed
  end

  def test_a_streaming_body_reads_what_the_client_has_sent
    port = serve do
      [200, {}, lambda { |stream|
        stream << stream.read(3).reverse << stream.read.upcase
        stream.close_read
        stream.flush
        stream.close
      }]
    end
    request = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 6\r\n\r\nabcdef"
    assert exchange(port, request).end_with?("3\r\ncba\r\n3\r\nDEF\r\n0\r\n\r\n") ||
           exchange(port, request).end_with?("6\r\ncbaDEF\r\n0\r\n\r\n")
  end

  def test_an_endless_body_is_not_read_where_the_response_has_none
    [["GET", 204], ["GET", 304], ["HEAD", 200]].each do |verb, status|
      body = CountedBody.new
      body.define_singleton_method(:each) { |&block| loop { block.call("event\n") } }
      port = serve { [status, {}, body] }
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write("#{verb} / HTTP/1.1\r\nHost: x\r\n\r\n")
      assert_match(%r{\AHTTP/1.1 #{status} }, relaxed { socket.gets("\r\n\r\n") })
      eventually { body.closed == 1 }
    ensure
      socket&.close
    end
  end

  def test_callbacks_run_in_reverse_order_and_a_failing_one_stops_no_other
    seen = Queue.new
    port = serve do |env|
      env["rack.response_finished"] << ->(given, *) { seen << [:first, given.equal?(env)] }
      env["rack.response_finished"] << ->(*) { raise "a broken callback" }
      env["rack.response_finished"] << ->(_, status, headers, error) { seen << [:last, status, headers, error] }
      [202, { "x-a" => "b" }, ["ok"]]
    end
    assert_equal 202, get(port).status
    assert_equal [[:last, 202, { "x-a" => "b" }, nil], [:first, true]], [seen.pop, seen.pop]
    assert_includes @output.string, "a broken callback"
  end

  def test_callbacks_get_the_error_of_a_client_that_has_left
    seen = Queue.new
    body = CountedBody.new
    body.define_singleton_method(:each) { |&block| loop { block.call("e" * 100_000) } }
    port = serve(web: { reply_memory_bytes_max: 4096, reply_spool_bytes_max: 0 }) do |env|
      env["rack.response_finished"] << ->(_, status, _, error) { seen << [status, error.class] }
      [200, {}, body]
    end
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
      socket.readpartial(1000)
      socket.setsockopt(Socket::Option.linger(true, 0))
    end
    assert_equal [200, Chaton::ClientGone], relaxed { seen.pop }
    eventually { body.closed == 1 }
  end

  private

  # Bodies that answer the method so are read by `each`, and closed once.
  def assert_read_by_each(method, answers)
    body = nil
    port = serve { [200, {}, body] }
    answers.each do |answer|
      body = CountedBody.new("one", "two")
      body.define_singleton_method(method) { answer }
      assert_equal "onetwo", get(port).body, answer.inspect
      eventually { body.closed == 1 }
    end
  end

  def with_file(text, name = "chaton")
    Tempfile.create(name) do |file|
      file.write(text)
      file.flush
      yield file.path
    end
  end
end
