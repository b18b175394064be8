# frozen_string_literal: true

require_relative "workload_case"

# Failures of an application do not harm other requests.
class FailureTest < Minitest::Test
  include WorkloadCase

  APP = lambda do |env|
    case env["PATH_INFO"]
    when "/raise" then raise IOError, "broken pipe to the moon"
    when "/throw" then throw :nowhere
    when "/exit" then exit 3
    when "/abort" then raise SignalException, "TERM"
    when "/kill" then Thread.current.kill
    when "/recurse" then APP.call(env)
    when "/nil" then nil
    when "/number" then 5
    when "/short" then [200]
    when "/status" then ["much", {}, []]
    when "/newline" then [200, { "x-evil" => "a\r\nSet-Cookie: b" }, []]
    when "/name" then [200, { "x evil" => "a" }, []]
    when "/chunk" then [200, {}, [7]]
    else [200, {}, ["fine"]]
    end
  end

  # path => what the log must say
  CASES = {
    "/raise" => "broken pipe to the moon", "/throw" => "uncaught throw", "/exit" => "SystemExit",
    "/abort" => "SIGTERM", "/kill" => "the thread was killed", "/recurse" => "stack level too deep",
    "/nil" => "a Rack application answers", "/number" => "a Rack application answers",
    "/short" => "a Rack application answers", "/status" => "is not a number", "/newline" => "x-evil",
    "/name" => "x evil", "/chunk" => "Integer"
  }.freeze

  def test_every_failure_is_answered_and_named_and_the_server_goes_on
    port = serve(&APP)
    paths = STRESS ? %w[/raise /kill /nil /newline] : CASES.keys
    paths.each do |path|
      assert_includes [500, nil], status_of(port, path), path
      eventually { @output.string.include?("GET #{path}") }
      assert_includes @output.string, CASES.fetch(path), path
      assert_equal "fine", get(port).body, "after #{path}"
    end
  end

  def test_killed_threads_are_replaced
    port = serve(threads: [2, 2], &APP)
    (STRESS ? 2 : 5).times { get(port, "/kill") }
    eventually { @workload.status[:pool][:threads] == 2 }
    assert_equal "fine", get(port).body
  end

  def test_the_error_handler_answers_in_place_of_the_500
    handler = ->(error, _env, status) { [status, { "x-error" => error.class.name }, ["sorry"]] }
    port = serve(hooks: { lowlevel_error_handler: handler }, &APP)
    response = get(port, "/raise")
    assert_equal [500, "IOError", "sorry"], [response.status, response.headers["x-error"], response.body]
  end

  def test_a_late_request_is_answered_and_its_thread_goes_on
    release = Queue.new
    port = serve(web: { request_timeout_s: STRESS ? 10 : 2 }) do |env|
      release.pop if env["PATH_INFO"] == "/late"
      [200, {}, ["fine"]]
    end
    assert_equal 503, get(port, "/late").status
    eventually { @output.string.include?("request is late") }
    assert_match(%r{GET /late.*failure_test\.rb}m, @output.string)
    assert_equal 1, @workload.status[:running].size
    release << :go
    eventually { @workload.status[:running].empty? }
    assert_equal "fine", get(port).body
  end

  def test_handles_of_the_parent_refuse_to_work_in_a_forked_child
    serve(&APP)
    native_pool = @workload.instance_variable_get(:@native_pool)
    reader, writer = IO.pipe
    pid = fork do
      writer << (begin
        native_pool.stats.to_s
      rescue Chaton::ForkedError => e
        e.message
      end)
      writer.close
      exit!(0)
    end
    writer.close
    Process.wait(pid)
    assert_includes reader.read, "before the fork"
  end

  def test_a_request_that_was_dropped_is_answered
    port = serve { |env| [200, {}, [env["PATH_INFO"]]] }
    handler = Object.new
    def handler.call(_request) = nil
    @workload.instance_variable_get(:@pool).instance_variable_set(:@handler, handler)
    client = Thread.new { status_of(port, "/dropped") }
    taken(1)
    # The collector may find the request on the stack of its thread until another one takes its place there.
    later = Thread.new { status_of(port, "/later") }
    taken(2)
    eventually do
      GC.start
      !client.alive?
    end
    assert_equal 500, client.value
  ensure
    later&.kill
  end

  private

  # Waits until so many requests were taken and none runs.
  def taken(count)
    native_pool = @workload.instance_variable_get(:@native_pool)
    eventually { native_pool.stats.values_at(:taken, :running) == [count, 0] }
  end

  # nil when the connection ended without an answer
  def status_of(port, path)
    exchange(port, "GET #{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[%r{\AHTTP/1.1 (\d+)}, 1]&.to_i
  end
end
