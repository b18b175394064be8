# frozen_string_literal: true

require "test_helper"
require "support/server"
require "support/tls_files"

# The requests of `warm_up` come before real ones: in the preloader for all its workers, else in each process.
class WarmUpServerTest < Minitest::Test
  include ServerTest

  CONFIG = "workers 2\nwarm_up { |client| %w[/a /b?c=d].each { |path| client.get(path) } }"
  WARM = %w[/a /b?c=d].freeze
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

  def preloader(server) = server.status.fetch("preloaders").fetch(0).to_s

  # @param newest [Integer] so many lines about warming there should be
  def assert_warm(server, newest)
    assert_equal WARM, calls(server).fetch(preloader(server))
    server.workers.each { |pid| assert_equal ["/real"], calls(server).fetch(pid.to_s).uniq }
    assert_equal newest, server.log.scan(/warmed up  requests=2 failed=0/).size
  end

  def test_a_preloader_is_warm_before_it_forks_also_in_a_phased_restart
    server = boot(rackup: APP, config: CONFIG)
    reach_all(server)
    assert_warm(server, 1)
    before = server.workers
    load = ClientLoad.new(server.port, clients: 2, path: "/real")
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    load.stop
    assert_empty load.failures
    assert_empty before & server.workers
    reach_all(server)
    assert_warm(server, 2)
    assert_equal 0, server.stop
  end

  def test_a_worker_that_replaces_a_dead_one_is_warm
    app = "warm = []\nrun ->(env) { env['PATH_INFO'] == '/a' ? warm << 1 : 0; [200, {}, [warm.size.to_s]] }"
    server = boot(rackup: app, config: "workers 1\nwarm_up { |client| client.get '/a' }")
    assert_equal "1", server.get("/").body
    dead = server.workers.first
    Process.kill("KILL", dead)
    server.eventually("another worker") { !server.workers.include?(dead) && server.workers.any? }
    server.eventually("it responds") { server.get("/").body == "1" rescue false } # rubocop:disable Style/RescueModifier
    assert_equal 1, server.log.scan(/warmed up/).size
    assert_equal 0, server.stop
  end

  DATABASE = <<~RUBY
    require "active_record"
    ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: File.expand_path("data.sqlite3"))
    run(lambda do |_env|
      one = ActiveRecord::Base.connection_pool.with_connection { |connection| connection.select_value("SELECT 1") }
      [200, {}, [one.to_s]]
    end)
  RUBY

  def test_connections_that_requests_have_opened_are_closed_before_the_fork
    needs_gems "activerecord", "sqlite3"
    server = boot(rackup: DATABASE, config: "workers 1\nwarm_up { |client| client.get '/' }")
    assert_match(/warmed up  requests=1 failed=0/, server.log)
    assert File.exist?(File.join(server.dir, "data.sqlite3"))
    files = Dir["/proc/#{preloader(server)}/fd/*"].filter_map { |link| File.readlink(link) if File.symlink?(link) }
    assert_empty files.grep(/data\.sqlite3/)
    assert_equal "1", server.get("/").body
    refute_match(/inherited|threads running/, server.log)
    assert_equal 0, server.stop
  end

  def test_without_preload_each_worker_is_warm_before_its_first_request
    server = boot(rackup: APP, config: "preload false\n#{CONFIG}")
    reach_all(server)
    server.workers.each { |pid| assert_equal [*WARM, "/real"], calls(server).fetch(pid.to_s).first(3) }
    assert_equal 0, server.stop
  end

  # A redirect to HTTPS would warm nothing.
  def test_requests_are_of_https_where_there_is_a_bind_with_it
    certificate = TlsFiles.new(Dir.mktmpdir("chaton-tls"))
    certificate.write("app")
    bind = "bind 'https://127.0.0.1:0', **#{certificate.pair("app").inspect}"
    server = boot(rackup: APP, config: "#{CONFIG}\nweb { https_only true }\nbind 'tcp://127.0.0.1:0'\n#{bind}")
    assert_match(/warmed up  requests=2 failed=0 statuses="200: 2"/, server.log)
    assert_equal 0, server.stop
  ensure
    FileUtils.remove_entry(certificate.path("")) if certificate
  end

  def test_a_failure_does_not_stop_the_boot
    app = "run ->(env) { env[\"PATH_INFO\"] == \"/\" ? [200, {}, [\"hello\"]] : raise(\"cold\") }"
    server = boot(rackup: app, config: "warm_up { |client| client.get \"/raises\" }")
    assert_match(%r{a warm_up request failed  request="GET /raises" error=RuntimeError reason=cold}, server.log)
    assert_equal "hello", server.get("/").body
    assert_equal 0, server.stop
  end
end
