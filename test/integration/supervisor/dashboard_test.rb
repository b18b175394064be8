# frozen_string_literal: true

require "test_helper"
require "pty"
require "support/dashboard_case"

# The dashboard at the admin endpoint: who gets in, what it shows, and what its actions do.
class DashboardTest < Minitest::Test
  include DashboardCase

  # What browsers send for a page of the same origin, and for one of another site.
  OWN_PAGE = { "Sec-Fetch-Site" => "same-origin", "Origin" => "http://localhost" }.freeze
  FOREIGN = [{ "Origin" => "http://evil.example" }, { "Sec-Fetch-Site" => "cross-site" },
             { "Origin" => "http://localhost", "Sec-Fetch-Site" => "same-site" }, { "Origin" => "null" }, {}].freeze
  ACTIONS = %w[phased-restart restart-worker?worker=0 backtraces?worker=0 pause?queue=low resume?queue=low
               retry?place=dead&jid=1 delete?place=dead&jid=1 retry-all?place=dead&count=1
               delete-all?place=dead&count=1 kill?place=retry&jid=1 kill-all?place=retry&count=1
               run-cron?name=nightly].freeze

  def test_the_page_opens_with_a_link_that_works_once
    server = boot_web
    assert_equal [401, 401], [page(server, "/").status, page(server, "/dashboard.json").status]
    assert_match(/chaton dashboard/, page(server, "/").body)
    url, valid, status = run_cli(server, "dashboard")
    assert_equal 0, status, valid
    assert_match(/60 s, and once.*ssh -L/m, valid)
    path = url[%r{\Ahttp://localhost(/open\?key=\h{64})$}, 1]
    assert_equal 401, page(server, path, method: "HEAD").status, "a look ahead does not use it up"
    opened = page(server, path)
    assert_equal 200, opened.status
    cookie = opened.headers["set-cookie"]
    assert_match(%r{; path=/; max-age=43200; httponly; samesite=strict\z}, cookie)
    assert_equal [403, nil], page(server, path).then { |again| [again.status, again.headers["set-cookie"]] }
    session = { "Cookie" => "other=1; #{cookie[/\A[^;]+/]}" }
    shown = page(server, "/", headers: session)
    assert_equal 200, shown.status
    policy = shown.headers["content-security-policy"]
    assert_match(/default-src 'none'; script-src 'self'; style-src 'self'; .*frame-ancestors 'none'/, policy)
    refute_match(/unsafe|https?:/, policy)
    refute_match(%r{(?:src|href)=["']?(?:https?:)?//|<script[^>]*>[^<]|style=|onclick}, shown.body)
    assert_equal 200, page(server, "/dashboard.json", headers: session).status
    assert_equal 401, page(server, "/dashboard.json", headers: { "Cookie" => "#{cookie[/\A[^;]+/]}0" }).status
    refute_includes server.log, path[/\h{64}/]
  end

  def test_a_port_is_named_in_the_link_and_a_foreign_host_is_refused
    server = boot(config: "workers 1\nadmin { bind \"tcp://0.0.0.0:0\" }")
    url = server.control("dashboard")["url"]
    port, path = url.match(%r{\Ahttp://127\.0\.0\.1:(\d+)(/open.*)\z}).captures
    client = AdminClient.new(port.to_i)
    own = "127.0.0.1:#{port}"
    ["/", path, "/dashboard.js"].each { |one| assert_equal 403, client.get(one, host: "evil.example:#{port}").status }
    cookie = client.get(path, host: own).headers["set-cookie"][/\Achaton_dashboard_#{port}=\h+/]
    { "http://#{own}" => 404, "http://127.0.0.1:1" => 403, "http://127.0.0.1" => 403 }.each do |origin, status|
      headers = { "Cookie" => cookie, "Origin" => origin }
      assert_equal status, client.get("/actions/other", method: "POST", host: own, headers: headers).status, origin
    end
    session = { "Cookie" => cookie }
    assert_equal 403, client.get("/dashboard.json", host: "evil.example:#{port}", headers: session).status
    assert_equal 200, client.get("/dashboard.json", host: own, headers: session).status
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  # The key must not be in the arguments of a process.
  def test_the_command_opens_a_browser_with_a_file_that_only_its_owner_can_read
    server = boot_web(config: "admin { bind \"tcp://127.0.0.1:0\" }")
    server.write("bin/xdg-open", "#!/bin/sh\nstat -c %a \"$1\" > mode.new; cat \"$1\" >> mode.new; mv mode.new mode\n")
    File.chmod(0o755, server.path("bin/xdg-open"))
    env = { "DISPLAY" => ":0", "PATH" => "#{server.path("bin")}:#{ENV.fetch("PATH")}" }
    PTY.spawn(env, RbConfig.ruby, "-I", Server::LIB, Server::EXE, "dashboard", chdir: server.dir) do |out, _, pid|
      server.eventually("it is opened", timeout_s: WAIT_S) { File.exist?(server.path("mode")) }
      Process.wait(pid)
      key = out.read_nonblock(1000)[/key=\h{64}/] or flunk "no link is printed"
      assert_match(/\A600\n.*#{key}/, server.read("mode"))
    end
  end

  def test_an_action_needs_a_session_or_the_token_post_and_the_same_origin
    server = boot_web
    session = open_session(server)
    worker = server.workers
    foreign = FOREIGN.reject(&:empty?).first(2)
    ACTIONS.map { |action| "/actions/#{action}" }.each do |action|
      assert_equal 401, page(server, action, method: "POST", headers: OWN_PAGE).status, action
      assert_equal [405, 405], [session, BEARER].map { |who| page(server, action, headers: who).status }, action
      FOREIGN.each { |headers| assert_equal 403, post(server, action, session.merge(headers)).status, action }
      foreign.each { |headers| assert_equal 403, post(server, action, BEARER.merge(headers)).status, action }
    end
    assert_equal 401, post(server, "/actions/pause?queue=low", "Authorization" => "Bearer #{TOKEN}0").status
    assert_equal [400, 404], [post(server, "/actions/restart-worker").status, post(server, "/actions/other").status]
    refused = post(server, "/actions/restart-worker?worker=7")
    assert_equal [409, true], [refused.status, refused.json["error"].include?("no worker 7")]
    assert_equal worker, server.workers
  end

  def test_the_body_of_a_request_is_not_read
    server = boot_web
    head = "POST /actions/phased-restart HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer #{TOKEN}\r\n"
    UNIXSocket.open(server.path("admin.sock")) do |client|
      client.write("#{head}Content-Length: 10000000\r\n\r\n")
      assert_raises(Errno::EPIPE, Errno::ECONNRESET) { 100.times { client.write("x" * 100_000) } }
    end
    refused = AdminClient.new(server.path("admin.sock")).exchange("#{head}Content-Length: 10000000\r\n\r\n")
    assert_match(/\AHTTP.1.1 413 .*a request has no body here/m, refused)
    assert_nil server.status["restart"]
  end

  def test_a_session_ends_with_a_full_restart
    server = boot_web
    session = open_session(server)
    assert_equal 200, page(server, "/dashboard.json", headers: session).status
    before = server.status["admin"]["pid"]
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: WAIT_S)
    server.eventually("another process serves", timeout_s: WAIT_S) do
      server.status["admin"]["pid"] != before && page(server, "/ready").status == 200
    end
    assert_equal 401, page(server, "/dashboard.json", headers: session).status
    assert_equal 401, post(server, "/actions/phased-restart", session.merge(OWN_PAGE)).status
    assert_equal 200, page(server, "/dashboard.json", headers: open_session(server)).status
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_worker_is_replaced_and_then_all_of_them
    server = boot_web(workers: 2)
    session = open_session(server)
    first, second = server.workers
    assert_equal 200, post(server, "/actions/restart-worker?worker=1", session.merge(OWN_PAGE)).status
    server.eventually("worker 1 is another one", timeout_s: WAIT_S) { calm(server) && server.workers.last != second }
    assert_equal first, server.workers.first
    assert_match(/worker recycled: as asked/, server.log)
    assert_equal 0, server.status["memory"]["recycled_total"]
    before = server.workers
    assert_equal 200, post(server, "/actions/phased-restart").status
    server.eventually("all are other ones", timeout_s: WAIT_S) do
      calm(server) && server.workers.size == 2 && !server.workers.intersect?(before)
    end
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_it_shows_what_runs_and_what_each_thread_does
    app = <<~RUBY
      run(lambda do |env|
        sleep 0.01 until env["PATH_INFO"] == "/" || File.exist?("end")
        [200, {}, ["done"]]
      end)
    RUBY
    server = boot_web(rackup: app)
    request = Thread.new { server.get("/wait?secret=1").body }
    unit = eventually_shown(server) { |shown| shown["workers"].first["running"]&.first }
    assert_equal ["web", "GET /wait"], unit.values_at("role", "what").map { |text| text[/\A[^?]+/] }
    worker = document(server)["workers"].first
    assert_equal [server.workers.first, "ready", 1], worker.values_at("pid", "state", "busy")
    threads = post(server, "/actions/backtraces?worker=0").json["threads"]
    assert(threads.any? { |thread| thread["backtrace"].any? { |line| line.include?("config.ru") } })
    server.write("end", "")
    assert_equal "done", request.value
    eventually_shown(server) do |shown|
      shown["web"]["responses"]["2xx"] == 1 && shown["web"]["duration"]["buckets"].sum == 1
    end
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_without_workers
    server = boot_web(workers: 0)
    session = open_session(server)
    shown = eventually_shown(server) { |one| one["ready"]["status"] == "ready" && one }
    assert_equal server.pid, shown["workers"].first["pid"]
    threads = post(server, "/actions/backtraces?worker=0", session.merge(OWN_PAGE)).json["threads"]
    assert(threads.any? { |thread| thread["backtrace"].any? { |line| line.include?("single.rb") } })
    assert_equal 200, post(server, "/actions/restart-worker?worker=0", session.merge(OWN_PAGE)).status
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: WAIT_S)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_server_without_the_endpoint_says_how_to_get_it
    ["", "admin { statsd \"udp://127.0.0.1:9\" }"].each do |config|
      server = boot(config: "workers 1\n#{config}")
      _, problem, status = run_cli(server, "dashboard")
      assert_equal 1, status, config
      assert_match(/no admin endpoint: write `admin \{ bind/, problem)
    end
  end
end
