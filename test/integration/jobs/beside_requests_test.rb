# frozen_string_literal: true

require "test_helper"
require "support/raw_client"
require "support/server"

# Requests and jobs of one process.
class BesideRequestsTest < Minitest::Test
  include ServerTest

  # Enough that requests wait also while the kernel runs something else than the clients.
  CLIENTS = 24
  # Each unit of work computes 5 ms and waits for nothing, as a job would that enqueues another one: its share is one of
  # time. There are more jobs than the test lets run.
  APP = <<~RUBY
    class Burn
      include Chaton::Job

      LOCK = Mutex.new
      COUNTS = { web: 0, jobs: 0 }

      def self.burn(kind)
        until_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.005
        nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < until_s
        LOCK.synchronize { COUNTS[kind] += 1 }
      end

      def perform = Burn.burn(:jobs)
    end

    run(lambda do |env|
      case env["PATH_INFO"]
      when "/start" then Burn.perform_bulk([[]] * 5_000)
      when "/burn" then Burn.burn(:web)
      end
      [200, { "content-type" => "text/plain" }, [Burn::COUNTS.values.join(" ")]]
    end)
  RUBY

  def test_jobs_get_a_tenth_of_the_time_beside_requests_that_always_wait
    server = boot(rackup: APP, config: <<~RUBY)
      threads 1..4
      jobs { store "sqlite://jobs.db" }
    RUBY
    server.get("/start")
    server.eventually("jobs run alone") { counts(server).last >= 20 }
    web, jobs = saturated(server)
    share = jobs.fdiv(web + jobs)
    assert_in_delta 0.1, share, 0.05, "#{jobs} jobs beside #{web} requests"
    server.eventually("jobs run alone again") { counts(server).last > jobs }
    server.stop
  end

  private

  def counts(server) = server.get("/").body.split.map(&:to_i)

  # @return [Array<Integer>] requests and jobs that ended while requests waited
  def saturated(server)
    done = false
    clients = Array.new(CLIENTS) { Thread.new { request(server.port) { done } } }
    first = counts(server)
    # The jobs that ran alone may have used up the share of the first second.
    server.eventually("jobs run beside requests", timeout_s: 60) { counts(server).last >= first.last + 8 }
    from = counts(server)
    server.eventually("the requests are answered", timeout_s: 60) { counts(server).first >= from.first + 400 }
    counts(server).zip(from).map { |now, before| now - before }
  ensure
    done = true
    clients&.each(&:join)
  end

  def request(port)
    client = RawClient.new(port)
    until yield
      client.write("GET /burn HTTP/1.1\r\nHost: h\r\n\r\n")
      client.read_response
    end
  ensure
    client&.close
  end
end
