# frozen_string_literal: true

require "test_helper"
require "support/server"

# A worker runs the requests of `warm_up` before it takes real ones.
class WarmUpServerTest < Minitest::Test
  include ServerTest

  CONFIG = "workers 2\nwarm_up { |client| %w[/a /b?c=d].each { |path| client.get(path) } }"
  # Writes a line for each request that the application gets: its process and its path.
  APP = <<~'RUBY'
    use(Class.new do
      def initialize(app) = @app = app

      def call(env)
        line = "#{Process.pid} #{[env["PATH_INFO"], env["QUERY_STRING"]].reject(&:empty?).join("?")}\n"
        File.write("calls", line, mode: "a")
        @app.call(env)
      end
    end)
    run ->(_env) { [200, { "content-type" => "text/plain" }, [Process.pid.to_s]] }
  RUBY

  def calls(server)
    server.read("calls").lines(chomp: true).map(&:split).group_by(&:first).transform_values { |all| all.map(&:last) }
  end

  # Requests on new connections, until each worker has responded to one.
  def reach_all(server)
    server.eventually("each worker has responded") do
      server.get("/real")
      server.workers.all? { |pid| calls(server)[pid.to_s]&.include?("/real") }
    end
  end

  def assert_warm(server)
    server.workers.each { |pid| assert_equal %w[/a /b?c=d /real], calls(server).fetch(pid.to_s).first(3) }
  end

  def test_workers_are_warm_before_their_first_request_also_after_a_phased_restart
    server = boot(rackup: APP, config: CONFIG)
    reach_all(server)
    assert_warm(server)
    before = server.workers
    load = ClientLoad.new(server.port, clients: 2, path: "/real")
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    load.stop
    assert_empty load.failures
    assert_empty before & server.workers
    reach_all(server)
    assert_warm(server)
    assert_equal 4, server.log.scan(/warmed up  requests=2 failed=0/).size
    assert_equal 0, server.stop
  end

  def test_a_failure_does_not_stop_the_boot
    app = "run ->(env) { env[\"PATH_INFO\"] == \"/\" ? [200, {}, [\"hello\"]] : raise(\"cold\") }"
    server = boot(rackup: app, config: "warm_up { |client| client.get \"/raises\" }")
    assert_match(%r{a warm_up request failed  request="GET /raises" error=RuntimeError reason=cold}, server.log)
    assert_equal "hello", server.get("/").body
    assert_equal 0, server.stop
  end
end
