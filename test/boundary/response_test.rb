# frozen_string_literal: true

require_relative "counted_body"
require_relative "workload_case"
require "rack"
require "tempfile"

# Every shape of a Rack response, through the boundary and over a socket.
class ResponseTest < Minitest::Test
  include WorkloadCase

  def test_an_array_of_strings
    port = serve { [200, { "x-test" => "yes" }, %w[one two]] }
    response = get(port)
    assert_equal [200, "onetwo", "6", "yes"],
                 [response.status, response.body, response.headers["content-length"], response.headers["x-test"]]
  end

  def test_many_requests_on_one_connection
    port = serve { |env| [200, {}, [env["PATH_INFO"]]] }
    connect(port) do |client|
      (STRESS ? 5 : 50).times { |n| assert_equal "/#{n}", client.get("/#{n}").body }
    end
  end

  def test_a_large_string_is_sent_as_it_was_even_when_the_application_changes_it
    text = "a" * 3_000_000
    port = serve { [200, {}, [text]] }
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    first = relaxed { socket.readpartial(1000) }
    text.replace("b" * 3_000_000)
    GC.start
    GC.compact if GC.respond_to?(:compact)
    body = (first + socket.read).split("\r\n\r\n", 2).last
    assert_equal [3_000_000, true], [body.size, body.delete("a").empty?]
  ensure
    socket&.close
  end

  def test_small_and_large_strings_together
    port = serve { [200, {}, ["x", "y" * 100_000, "z"]] }
    assert_equal "x#{"y" * 100_000}z", get(port).body
  end

  def test_a_body_with_each_is_chunked_and_closed_once
    body = CountedBody.new("one", "two", "")
    port = serve { [200, {}, body] }
    response = get(port)
    assert_equal %w[onetwo chunked], [response.body, response.headers["transfer-encoding"]]
    eventually { body.closed == 1 }
  end

  def test_a_body_with_each_and_a_length_is_not_chunked
    port = serve { [200, { "content-length" => "6" }, CountedBody.new("one", "two")] }
    response = get(port)
    assert_equal ["onetwo", nil], [response.body, response.headers["transfer-encoding"]]
  end

  def test_a_body_that_breaks_off_ends_the_connection_without_a_proper_end
    body = CountedBody.new("one", "two", fail_after: 1)
    port = serve { [200, {}, body] }
    answer = exchange(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_includes answer, "3\r\none\r\n"
    refute answer.end_with?("0\r\n\r\n")
    eventually { body.closed == 1 && @output.string.include?("body broke") }
  end

  def test_an_enumerator
    port = serve { [200, {}, Enumerator.new { |y| 3.times { |n| y << n.to_s } }] }
    assert_equal "012", get(port).body
  end

  def test_a_streaming_body_that_is_closed_by_another_thread
    port = serve do
      [200, {}, lambda { |stream|
        Thread.new do
          stream << "late " << "stream"
          stream.close
        end
      }]
    end
    assert_equal "late stream", get(port).body
  end

  def test_a_file_by_its_path
    Tempfile.create("chaton") do |file|
      file.write("f" * 200_000)
      file.flush
      body = CountedBody.new("not this")
      body.define_singleton_method(:to_path) { file.path }
      port = serve { [200, {}, body] }
      response = get(port)
      assert_equal ["200000", "f" * 200_000], [response.headers["content-length"], response.body]
      eventually { body.closed == 1 }
    end
  end

  def test_head_has_the_length_and_no_body
    port = serve { [200, { "content-length" => "5" }, []] }
    answer = exchange(port, "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert_match(/content-length: 5\r\n/i, answer)
    assert answer.end_with?("\r\n\r\n")
  end

  def test_headers_of_rack_2_and_rack_3
    port = serve { [200, { "Set-Cookie" => "a=1\nb=2", "x-list" => %w[c d] }, []] }
    answer = exchange(port, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert_equal ["Set-Cookie: a=1", "Set-Cookie: b=2", "x-list: c", "x-list: d"],
                 answer.scan(/^(?:Set-Cookie|x-list): \w+(?:=\w)?/)
  end

  def test_a_status_and_headers_that_are_no_strings
    port = serve { ["201", { "x-number": 7 }, ["made"]] }
    response = get(port)
    assert_equal [201, "7", "made"], [response.status, response.headers["x-number"], response.body]
  end

  def test_early_hints_come_first
    port = serve(web: { early_hints: true }) do |env|
      env["rack.early_hints"].call("link" => "</style.css>; rel=preload")
      [200, {}, ["done"]]
    end
    answer = exchange(port, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n"
    assert answer.start_with?("#{hints}HTTP/1.1 200 OK\r\n"), answer
  end

  def test_hints_that_are_no_headers_are_left_out
    port = serve(web: { early_hints: true }) do |env|
      env["rack.early_hints"].call("li nk" => "</a>", "a\r\nb" => "</b>", "link" => "</c>\r\nx: y\n\x01\n</d>")
      [200, {}, ["done"]]
    end
    answer = exchange(port, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    hints = "HTTP/1.1 103 Early Hints\r\nlink: x: y\r\nlink: </d>\r\n\r\n"
    assert answer.start_with?("#{hints}HTTP/1.1 200 OK\r\n"), answer
  end

  def test_hints_that_the_server_cannot_send_raise
    port = serve(web: { early_hints: true }) do |env|
      env["rack.early_hints"].call("content-length" => "many")
    rescue Chaton::ResponseError => e
      [200, {}, [e.message]]
    end
    assert_match(/Content-Length is "many"/, get(port).body)
  end

  def test_an_answer_may_come_long_after_its_hints
    gate = Queue.new
    port = serve(web: { early_hints: true }) do |env|
      env["rack.early_hints"].call("link" => "</style.css>")
      gate.pop
      [200, {}, ["done"]]
    end
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert_equal "HTTP/1.1 103 Early Hints\r\n", socket.gets
    seen = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    eventually { Process.clock_gettime(Process::CLOCK_MONOTONIC) - seen > 0.05 }
    gate << :go
    assert_includes relaxed { socket.read }, "HTTP/1.1 200 OK\r\n"
  ensure
    socket&.close
  end

  def test_a_large_request_behind_a_slow_one_on_the_same_connection
    gate = Queue.new
    port = serve do |env|
      gate.pop if env["PATH_INFO"] == "/slow"
      [200, {}, [env["rack.input"].read.size.to_s]]
    end
    socket = TCPSocket.new("127.0.0.1", port)
    writer = Thread.new do
      socket.write("GET /slow HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" \
                   "Content-Length: 200000\r\n\r\n", "x" * 200_000)
    end
    eventually { @workload.status[:pool][:running] == 1 }
    writer.join
    gate << :go
    assert relaxed { socket.read }.end_with?("\r\n\r\n200000")
  ensure
    socket&.close
  end

  def test_callbacks_after_the_reply
    seen = Queue.new
    port = serve do |env|
      env["rack.after_reply"] << -> { seen << :after }
      env["rack.response_finished"] << ->(_env, status, _headers, error) { seen << [status, error] }
      [200, {}, ["ok"]]
    end
    assert_equal "ok", get(port).body
    assert_equal [:after, [200, nil]], [seen.pop, seen.pop]
  end

  def test_callbacks_after_an_error_get_the_response_that_was_sent
    seen = Queue.new
    app = lambda do |env|
      env["rack.response_finished"] << ->(*arguments) { seen << arguments.drop(1) }
      raise "no luck"
    end
    assert_equal 500, get(serve(&app)).status
    *response, error = seen.pop
    assert_equal [[500, {}], "no luck"], [response, error.message]
    handled = serve(hooks: { lowlevel_error_handler: -> { [418, { "x-a" => "b" }, []] } }, &app)
    assert_equal 418, get(handled).status
    assert_equal [418, { "x-a" => "b" }], seen.pop.first(2)
  end

  def test_a_length_that_contradicts_the_body_is_named_in_the_log
    port = serve { [200, { "content-length" => "9" }, ["hello"]] }
    assert_equal 500, get(port).status
    assert_match(/Content-Length is 9 but the body has 5 bytes; correct it or leave the header out/, @output.string)
  end

  def test_an_application_that_survives_rack_lint
    app = Rack::Lint.new(->(env) { [200, { "content-type" => "text/plain" }, [env["rack.input"].read]] })
    # Lint is not what is tested: under stress it alone takes minutes.
    port = serve { |env| relaxed { env } && app.call(env) }
    answer = exchange(port, "POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
    # Rack 3's Lint hands on that the body is an Array, Rack 2's does not.
    assert_match(/\r\n\r\n(?:3\r\nabc\r\n0\r\n\r\n|abc)\z/, answer)
  end
end
