# frozen_string_literal: true

require "test_helper"
require "support/http_client"
require "support/server"

# A time-out, an exception or a kill from another thread reaches a request that computes, while others wait for it.
class InterruptsTest < Minitest::Test
  include ServerTest

  # Requests that are interrupted, of each kind.
  ROUNDS = 6
  # Other clients, which make the pool take the GVL from the computing thread.
  NEIGHBOURS = 8
  # A request that is not interrupted computes for this long (s), far longer than the interrupt takes.
  COMPUTES_S = 4

  APP = <<~RUBY.freeze
    require "timeout"
    compute = lambda do
      until_s = Process.clock_gettime(Process::CLOCK_MONOTONIC) + #{COMPUTES_S}
      nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < until_s
      "finished"
    end
    from_outside = lambda do |&interrupt|
      target = Thread.current
      Thread.new { sleep 0.2; interrupt.call(target) }
      compute.call
    end
    run(lambda do |env|
      result =
        begin
          case env["PATH_INFO"]
          when "/timeout" then Timeout.timeout(0.2) { compute.call }
          when "/raise" then from_outside.call { |thread| thread.raise(IOError, "from outside") }
          when "/kill" then from_outside.call(&:kill)
          else "hello"
          end
        rescue Timeout::Error, IOError => e
          "interrupted by \#{e.class}"
        end
      [200, { "content-type" => "text/plain" }, [result]]
    end)
  RUBY

  def test_a_time_out
    among_neighbours { |client| assert_equal "interrupted by Timeout::Error", client.get("/timeout").body }
  end

  def test_an_exception_raised_in_the_thread
    among_neighbours { |client| assert_equal "interrupted by IOError", client.get("/raise").body }
  end

  def test_a_killed_thread
    among_neighbours { |client| assert_equal 500, client.get("/kill").status }
  end

  private

  # Yields a client for each round, while the neighbours' requests wait.
  def among_neighbours(&request)
    server = boot(rackup: APP, config: "workers 0\nthreads 1..8")
    done = false
    neighbours = Array.new(NEIGHBOURS) { Thread.new { request_until(server.port) { done } } }
    ROUNDS.times { HttpClient.open(server.port, &request) }
  ensure
    done = true
    neighbours&.each(&:join)
    assert_equal 0, server.stop if server
  end

  def request_until(port)
    HttpClient.open(port) { |client| client.get("/") until yield }
  end
end
