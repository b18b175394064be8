# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/server"

# The admin endpoint: /live and /ready in each state of a server and its workers.
class AdminTest < Minitest::Test
  include ServerTest

  WAIT_S = 60
  # A worker boots, the application loads, and /wait ends, when the file of that name exists.
  GATE = 'sleep 0.01 until File.exist?("%s")'
  ADMIN = "admin { bind \"unix://admin.sock\" }\n"
  CONFIG = "#{ADMIN}on_worker_boot { |index| #{format(GATE, "boot-\#{index}")} }\n".freeze
  APP = <<~RUBY.freeze
    #{format(GATE, "load")}
    run(lambda do |env|
      #{format(GATE, "end")} if env["PATH_INFO"] == "/wait"
      [200, {}, ["done"]]
    end)
  RUBY

  # Locks a mutex of the C library twice while it holds the GVL. Unlike a sleep, no signal ends that.
  HANG = <<~RUBY
    require "fiddle"
    lock = Fiddle::Function.new(Fiddle::Handle::DEFAULT["pthread_mutex_lock"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_INT,
                                need_gvl: true)
    mutex = Fiddle::Pointer.malloc(64)
    mutex[0, 64] = "\0" * 64
    run ->(_) { 2.times { lock.call(mutex) } }
  RUBY

  def test_health_follows_a_worker_through_its_life
    server = launch(rackup: APP, config: "workers 1\n#{CONFIG}")
    becomes(server, 503, /web is not ready: there is no worker for it/)
    server.write("load", "")
    becomes(server, 503, /worker 0 is booting/)
    server.write("boot-0", "")
    assert_equal({ "ready" => true, "workers" => 1, "ready_workers" => 1, "reasons" => [] },
                 becomes(server, 200)["roles"]["web"])
    File.unlink(server.path("boot-0"))
    server.signal("KILL", server.workers.first)
    becomes(server, 503, /worker 0 is (about to start|booting)/)
    server.write("boot-0", "")
    becomes(server, 200)
    request = Thread.new { server.get("/wait").body }
    server.eventually("the request runs", timeout_s: WAIT_S) { server.status["workers"].first["running"] == 1 }
    server.signal("TERM")
    becomes(server, 503, /the server is stopping/)
    server.write("end", "")
    assert_equal [0, "done"], [server.wait_exit(timeout_s: WAIT_S), request.value]
    refute_path_exists server.path("admin.sock")
  end

  def test_a_phased_restart_keeps_it_ready
    server = open_gates(config: "workers 2\npreload false\n#{CONFIG}")
    becomes(server, 200)
    File.unlink(server.path("boot-0"))
    server.signal("USR1")
    becomes(server, 200) do |ready|
      ready["roles"]["web"].values_at("workers", "reasons") == [3, ["worker 0 is booting"]]
    end
    server.write("boot-0", "")
    becomes(server, 200) { |ready| ready["roles"]["web"].values_at("workers", "ready_workers") == [2, 2] }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  # The successor waits at its gate, so that the state lasts.
  def test_a_worker_that_hangs_and_is_killed_is_not_ready
    needs_gems("fiddle")
    server = open_gates(rackup: HANG, config: "workers 1\nalive_timeout_s 1\n#{CONFIG}")
    becomes(server, 200, live: false)
    File.unlink(server.path("boot-0"))
    client = Thread.new { server.get rescue "lost" } # rubocop:disable Style/RescueModifier
    becomes(server, 503, /worker 0 is (about to start|booting)/, live: false)
    server.wait_line(/worker killed: no Ruby thread/)
    server.write("boot-0", "")
    becomes(server, 200, live: false)
    assert_equal "lost", client.value
  end

  def test_a_number_that_was_given_up_is_named
    server = launch(config: "workers 2\nconstants_for_tests restart_delay_s: 0.01, crash_loop_count: 2\n#{ADMIN}" \
                            "on_worker_boot { |index| raise \"password\" if index == 1 }")
    report = becomes(server, 200) { |ready| ready["roles"]["web"]["reasons"].join.include?("given up") }
    refute_includes report.to_s, "password"
  end

  def test_a_killed_process_of_the_endpoint_comes_back_and_nothing_else_notices
    server = open_gates(config: "workers 1\n#{CONFIG}")
    becomes(server, 200)
    workers, pid = server.workers, server.status["admin"]["pid"]
    # As a service manager does that ends all processes of a server at once.
    server.signal("TERM", pid)
    2.times do |time|
      server.signal("KILL", server.status["admin"]["pid"])
      server.wait_line(/the admin endpoint's process died  status="killed by SIGKILL"/, count: time + 1)
      becomes(server, 200)
    end
    refute_equal pid, server.status["admin"]["pid"]
    refute_match(/killed by SIGTERM/, server.log)
    assert_equal [workers, 0], [server.workers, server.stop(timeout_s: WAIT_S)]
  end

  def test_the_process_starts_with_its_first_client
    server = open_gates(config: "workers 1\n#{CONFIG}")
    server.wait_line(/ ready  listen=/, timeout_s: WAIT_S)
    assert_nil server.status["admin"]["pid"]
    children = File.read("/proc/#{server.pid}/task/#{server.pid}/children").split
    assert_equal 200, admin(server).get("/live").status
    assert_equal [server.status["admin"]["pid"].to_s],
                 File.read("/proc/#{server.pid}/task/#{server.pid}/children").split - children
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_the_process_is_small_and_ends_with_the_supervisor
    server = open_gates(config: "workers 1\n#{CONFIG}")
    becomes(server, 200)
    pid = server.status["admin"]["pid"]
    own = File.read("/proc/#{pid}/smaps_rollup").scan(/^Private_\w+: +(\d+)/).flatten.sum(&:to_i)
    assert_operator own, :<=, 8 * 1024
    server.signal("KILL")
    server.eventually("it has ended", timeout_s: WAIT_S) { !server.alive?(pid) }
  end

  def test_a_full_restart_keeps_the_socket
    server = open_gates(config: "workers 1\n#{CONFIG}")
    becomes(server, 200)
    before = server.status["admin"]["pid"]
    inode = File.stat(server.path("admin.sock")).ino
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: WAIT_S)
    becomes(server, 200)
    assert_equal inode, File.stat(server.path("admin.sock")).ino
    refute_equal before, server.status["admin"]["pid"]
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_without_workers_a_thread_serves
    server = launch(rackup: APP, config: "workers 0\n#{ADMIN}")
    becomes(server, 503, /worker 0 is booting|no worker/)
    server.write("load", "")
    becomes(server, 200)
    assert_equal server.pid, server.status["admin"]["pid"]
    assert_equal 0o600, File.stat(server.path("admin.sock")).mode & 0o777
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: WAIT_S)
    becomes(server, 200)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_requests_that_must_not_come_in_are_refused
    server = boot(config: "workers 1\nadmin { bind \"tcp://127.0.0.1:0\"; hosts \"status.example.com\" }")
    port = server.status["admin"]["listen"].first[/\d+\z/].to_i
    client = AdminClient.new(port)
    server.eventually("it is ready", timeout_s: WAIT_S) { client.get("/ready").status == 200 }
    status = ->(path, **options) { client.get(path, **options).status }
    assert_equal [403, 403], [status.call("/live", host: "evil.example:#{port}"), status.call("/ready", host: "evil")]
    assert_equal [200, 200], [status.call("/live", host: "status.example.com"), status.call("/live", host: "127.0.0.1")]
    assert_equal [200, 404], [status.call("/ready?role=web"), status.call("/ready?role=jobs")]
    assert_equal [404, 405], [status.call("/other"), status.call("/live", method: "POST")]
    assert_equal 200, status.call("/live", host: nil)
    assert_match(/\AHTTP.1.1 431 /, client.exchange("GET /live HTTP/1.1\r\nX: #{"x" * 10_000}"))
    assert_match(/\AHTTP.1.1 400 /, client.exchange("\x16\x03\x01 no HTTP\r\n\r\n"))
    head = client.get("/live", method: "HEAD")
    assert_equal ["", "application/json"], [head.body, head.headers["content-type"]]
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  # They send nothing, a part of a head, or ask and keep the connection.
  def test_other_clients_keep_no_probe_out
    two = "constants_for_tests admin_connections_max: 2"
    server = open_gates(config: "workers 1\n#{ADMIN}admin { bind \"tcp://127.0.0.1:0\"; #{two} }")
    becomes(server, 200)
    port = server.status["admin"]["listen"].join[/tcp:.*:(\d+)/, 1].to_i
    connect = [-> { UNIXSocket.new(server.path("admin.sock")) }, -> { TCPSocket.new("127.0.0.1", port) }]
    requests = ["", "GET /live HTTP/1.1\r\n", "GET /dashboard.css HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    others = (connect * 50).product(requests).map { |make, request| make.call.tap { |socket| socket.write(request) } }
    [admin(server), AdminClient.new(port)].cycle(10) do |client|
      assert_equal [200, 200], [client.get("/live").status, client.get("/ready").status]
    end
    others.each(&:read)
  ensure
    others&.each(&:close)
  end

  def test_without_descriptors_the_client_that_has_waited_longest_makes_room
    config = "workers 1\n#{ADMIN}constants_for_tests admin_timeout_s: 600.0"
    server = open_gates(config: config, inherit: { rlimit_nofile: [64, 64] })
    becomes(server, 200)
    mute = Array.new(100) { UNIXSocket.new(server.path("admin.sock")) }
    becomes(server, 200)
    assert_nil mute.first.read(1), "the server closes it"
  ensure
    mute&.each(&:close)
  end

  def test_only_the_connection_of_a_client_with_the_token_is_kept
    token = "0123456789abcdef"
    server = open_gates(config: "workers 1\nadmin { bind \"unix://admin.sock?mode=0666\"; token \"#{token}\" }")
    becomes(server, 200)
    answers = lambda do |path, header|
      request = "GET #{path} HTTP/1.1\r\nHost: a\r\n#{header}"
      admin(server).exchange("#{request}\r\n#{request}Connection: close\r\n\r\n").scan("HTTP/1.1 200").size
    end
    assert_equal 2, answers.call("/metrics", "Authorization: Bearer #{token}\r\n")
    assert_equal 1, answers.call("/dashboard.css", "")
    assert_equal 0, server.stop
  end

  private

  # @return [Server] started, with all gates open
  def open_gates(rackup: Server::HELLO, **options)
    launch(rackup: rackup, **options) { |server| %w[load boot-0 boot-1 end].each { |name| server.write(name, "") } }
  end

  def admin(server) = AdminClient.new(server.path("admin.sock"))

  # Waits until /ready answers so, and checks that /live goes on.
  #
  # @return [Hash{String=>Object}] the answer
  def becomes(server, status, reason = //, live: true)
    server.eventually("/ready becomes #{status} #{reason.source}", timeout_s: WAIT_S) do
      answer = admin(server).get("/ready")
      next unless answer.status == status && answer.reasons.match?(reason) && (!block_given? || yield(answer.json))

      assert_equal 200, admin(server).get("/live").status if live
      answer.json
    rescue Errno::ENOENT, Errno::ECONNREFUSED
      nil # It does not listen yet.
    end
  end
end
