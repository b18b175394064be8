# frozen_string_literal: true

require "support/jobs_test_case"
require "support/otlp_collector"
require "support/streams_log"

# A server that answers requests, runs jobs and reads records, and sends its spans to a collector of the test.
module TracesCase
  include JobsTest

  WAIT_S = 60
  PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
  TRACE_ID = PARENT[3, 32]
  # Pushes a job, which pushes another one; produces a record.
  APP = <<~'RUBY'
    require_relative "app/jobs/jobs"
    run(lambda do |env|
      env["action_dispatch.route_uri_pattern"] = "/orders/:id(.:format)" if env["PATH_INFO"].start_with?("/orders")
      case env["PATH_INFO"]
      when "/orders/1" then First.perform_async("secret")
      when "/many" then First.perform_bulk([["a"], ["b"]])
      when "/click" then Chaton.produce!("clicks", "secret", key: "k", headers: { "own" => "1" })
      when "/fail" then raise IOError, "secret"
      when "/bad" then next [503, {}, []]
      end
      [200, { "content-type" => "text/plain" }, [env["HTTP_TRACEPARENT"].to_s]]
    end)
  RUBY
  JOBS = <<~RUBY
    class First
      include Chaton::Job
      def perform(_what)
        Second.perform_in(0.01, 1)
        Third.set(queue: "traces").perform_async
      end
    end

    class Second
      include Chaton::Job
      options retry: false
      def perform(_number) = raise(KeyError, "secret")
    end

    class Third
      include Chaton::Job
      def perform = nil
    end
  RUBY
  CONSUMER = <<~RUBY
    class Clicks < Chaton::Consumer
      def consume(batch) = batch.each { First.perform_async("record") }
    end
  RUBY

  def kind = :sqlite

  def time_limit_s = 240

  def setup
    super
    @collector = OtlpCollector.new
  end

  def teardown
    super
    @collector.close
  end

  private

  def section(more = "")
    soon = "constants_for_tests traces_interval_s: 0.02" unless more.include?("interval")
    "traces { endpoint #{@collector.url.dump}; #{[*soon, more].join("; ")} }"
  end

  def boot_traced(more = "", config: "", workers: 1, rackup: APP)
    streams = "streams { broker \"log://log\"; load \"app/consumers\"; topic \"clicks\", \"Clicks\", group: \"g\" }"
    boot_jobs(JOBS, rackup: rackup, workers: workers, section: "queues \"default\", \"traces\"",
                    config: "#{section(more)}\n#{streams}\n#{config}") do |server|
      server.write("app/consumers/clicks.rb", CONSUMER)
      FileUtils.mkdir_p(server.path("log"))
      StreamsLog.new(log_address(server)).create("clicks", partitions: 1)
    end
  end

  def log_address(server) = "log://#{server.path("log")}"

  def only(spans, kind, parent: nil)
    found = spans.select { |span| span.kind == kind && (parent.nil? || span.parent_id == parent.span_id) }
    assert_equal 1, found.size, "#{kind} below #{parent&.name}: #{spans.map { |span| [span.kind, span.name] }}"
    found.first
  end
end
