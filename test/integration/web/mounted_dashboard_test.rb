# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/jobs_test_case"
require "support/raw_client"

# Chaton::Dashboard as a Rack application, behind the application's own authentication.
class MountedDashboardTest < Minitest::Test
  include JobsTest

  WAIT_S = 60
  RACKUP = <<~RUBY
    require "chaton"
    require "rack/builder"
    require "rack/lint"
    require "rack/auth/basic"

    map "/admin/chaton" do
      use Rack::Auth::Basic, "admin" do |user, password|
        user == "ada" && password == "secret"
      end
      use Rack::Lint
      run Chaton::Dashboard
    end
    run(lambda do |env|
      sleep 0.01 until File.exist?("go") if env["PATH_INFO"] == "/slow"
      [200, { "content-type" => "text/plain" }, ["app"]]
    end)
  RUBY
  RAILS = <<~RUBY
    require "logger"
    require "action_controller/railtie"
    require "chaton"

    class App < Rails::Application
      config.eager_load = false
      config.secret_key_base = "0" * 64
      config.filter_parameters += ["pin", /\\Acard\\./, ->(name, value) { value.replace("gone") if name == "iban" }]
      config.logger = ActiveSupport::Logger.new($stderr)
      routes.append { scope("/admin") { mount Chaton::Dashboard => "/chaton" } }
    end
    class ApplicationController < ActionController::Base
      protect_from_forgery with: :exception
    end
    App.initialize!
    run Rails.application
  RUBY
  LOGIN = { "Authorization" => "Basic #{["ada:secret"].pack("m0")}" }.freeze
  OWN_PAGE = { "Origin" => "http://127.0.0.1" }.freeze
  JOBS = <<~RUBY
    class Note
      include Chaton::Job
      def perform(id) = Recorder.note(id)
    end
  RUBY

  def kind = :sqlite

  def time_limit_s = 240

  def test_it_shows_the_server_and_acts
    server = boot_jobs(JOBS, rackup: RACKUP, workers: "web: 2, jobs: 1")
    assert_equal 401, ask(server, "/", headers: {}).status
    page = ask(server, "")
    assert_equal page.body, ask(server, "/").body
    assert_equal [200, "text/html; charset=utf-8"], [page.status, page.headers["content-type"]]
    assert_match(/default-src 'none'/, page.headers["content-security-policy"])
    files = page.body.scan(%r{(?:src|href)="/admin/chaton(/[^":]+)"}).flatten
    assert_equal [200, 200], files.map { |path| ask(server, path).status }, files.to_s
    shown = document(server)
    assert_equal %w[jobs web web], shown["workers"].flat_map { |worker| worker["roles"] }.sort
    assert_equal server.workers.sort, shown["workers"].map { |worker| worker["pid"] }.sort
    assert_equal ["running", server.pid], shown["server"].values_at("state", "pid")
    assert_equal ["main", "preloader", "worker 0", "worker 1", "worker 2"], shown["processes"].map { |one| one["name"] }
    assert_own_requests_left_out(server)
    console(server).run("Chaton::Jobs::DeadSet.new.native.add(\"dead\", 1.0, " \
                        "JSON.generate(class: \"Note\", args: [7], jid: \"a\" * 24, queue: \"default\"))")
    retrying = "/actions/retry?place=dead&jid=#{"a" * 24}"
    assert_equal [403, 403, 405], [post(server, retrying, {}).status,
                                   post(server, retrying, "Origin" => "http://evil.example").status,
                                   ask(server, retrying).status]
    assert_equal 200, post(server, retrying).status
    server.eventually("it has run", timeout_s: WAIT_S) { server.record.entries.map(&:id) == ["7"] }
    web = server.workers
    assert_equal 200, post(server, "/actions/restart-worker?worker=2").status
    server.eventually("it is another one", timeout_s: WAIT_S) do
      server.workers.size == 3 && server.workers.last != web.last
    end
    assert_equal [404, 404], [ask(server, "/open?key=a").status, ask(server, "/other").status]
    odd = { "Origin" => "http://127.0.0.1\xFF", "X-Forwarded-Host" => "\xFF" }
    assert_equal 403, post(server, "/actions/other", odd).status
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  # Its protection from forgery is that of its controllers; the dashboard has its own.
  def test_rails_mounts_it
    needs_gems("bigdecimal", "nokogiri")
    server = boot_jobs(JOBS, rackup: RAILS, workers: "web: 1, jobs: 1")
    page = ask(server, "")
    assert_equal [200, 2], [page.status, page.body.scan(%r{(?:src|href)="/admin/chaton/dashboard\.}).size]
    assert_equal [server.pid, 2], document(server).then { |shown| [shown["server"]["pid"], shown["workers"].size] }
    post(server, "/actions/none")
    server.wait_line(%r{Started POST "/admin/chaton/actions/none"})
    assert_match(%r{Started GET "/admin/chaton"}, server.log)
    refute_match(%r{Started GET "/admin/chaton/dashboard.json"}, server.log)
    pausing = "/actions/pause?queue=low"
    assert_equal [403, 403, 405], [post(server, pausing, {}).status,
                                   post(server, pausing, "Origin" => "http://evil.example").status,
                                   ask(server, pausing).status]
    assert_equal 200, post(server, pausing).status
    argument = { "pin" => 1, "password" => "no filter here", "iban" => "DE1", "card" => { "number" => 2 } }
    console(server).run("Chaton::Jobs::DeadSet.new.native.add(\"dead\", 1.0, JSON.generate(class: \"Note\", " \
                        "args: [#{argument.inspect}], jid: \"a\" * 24, queue: \"default\"))")
    shown = server.eventually("a worker answers", timeout_s: WAIT_S) do
      JSON.parse(ask(server, "/job.json?place=dead&jid=#{"a" * 24}").body)["values"]
    end
    masked = { "pin" => "[FILTERED]", "iban" => "gone", "card" => { "number" => "[FILTERED]" } }
    assert_equal [argument.merge(masked)], shown
    assert_equal [404, 404], [ask(server, "/open?key=a").status, ask(server, "/other").status]
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_without_workers_it_shows_its_own_process
    server = boot_jobs(JOBS, rackup: RACKUP, workers: "0")
    shown = document(server)
    assert_equal [server.pid, %w[web jobs]], shown["workers"].first.values_at("pid", "roles")
    assert_equal %w[main], shown["processes"].map { |one| one["name"] }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_process_that_is_no_worker_says_so
    script = "require \"chaton\"; p Chaton::Dashboard.call(\"PATH_INFO\" => \"/\", \"SCRIPT_NAME\" => \"\").first"
    out, = Open3.capture2e(RbConfig.ruby, "-I", Server::LIB, "-e", script)
    assert_equal "503\n", out
  end

  private

  # The page asks all the time: what it shows is the application's.
  def assert_own_requests_left_out(server)
    slow = Thread.new { server.get("/slow").status }
    shown = server.eventually("the slow request is shown", timeout_s: WAIT_S) do
      document(server).then { |one| one if one["workers"].any? { |worker| worker["running"]&.any? } }
    end
    assert_equal ["GET /slow"], shown["workers"].flat_map { |worker| worker["running"] }.map { |unit| unit["what"] }
    # That without a password never came to the page.
    responses, duration = shown["web"].values_at("responses", "duration")
    assert_equal [0, 1, 1], [*responses.values_at("2xx", "4xx"), duration["buckets"].sum]
    server.write("go", "")
    assert_equal 200, slow.value
    server.eventually("it is counted", timeout_s: WAIT_S) { document(server)["web"]["responses"]["2xx"] == 1 }
  end

  # @return [RawClient::Response]
  def ask(server, path, headers: LOGIN, method: "GET")
    lines = ["#{method} /admin/chaton#{path} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 0",
             *headers.map { |name, value| "#{name}: #{value}" }]
    RawClient.open(server.port) { |client| client.write("#{lines.join("\r\n")}\r\n\r\n").read_response }
  end

  def post(server, path, headers = OWN_PAGE) = ask(server, path, headers: LOGIN.merge(headers), method: "POST")

  def document(server)
    server.eventually("all workers are shown", timeout_s: WAIT_S) do
      answer = ask(server, "/dashboard.json")
      shown = JSON.parse(answer.body)
      next unless answer.status == 200 && shown["ready"]["status"] == "ready"

      shown if shown["workers"].all? { |worker| worker["running"] }
    end
  end
end
