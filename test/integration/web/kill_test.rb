# frozen_string_literal: true

require "test_helper"
require "support/raw_client"
require "support/server"

# Shutdowns and kills under load: surviving workers respond to all requests they have accepted.
class KillTest < Minitest::Test
  include ServerTest

  ROUNDS = 3
  CLIENTS = 6
  APP = 'run ->(_env) { [200, { "content-type" => "text/plain" }, [Process.pid.to_s]] }'
  CONFIG = "workers 2\nconstants_for_tests restart_delay_s: 0.05, restart_delay_max_s: 0.05, crash_loop_count: 100"

  # Clients in a loop that know which worker their connection is with. A loss is noted with that worker's pid, or
  # nil when none had answered on it yet.
  class Witnesses
    attr_reader :losses

    def initialize(port, clients)
      @port = port
      @answered = Hash.new(0)
      @losses = []
      @lock = Mutex.new
      @threads = Array.new(clients) { Thread.new { watch } }
    end

    # @return [Integer] by workers other than these
    def answered(except: []) = @lock.synchronize { @answered.except(*except).values.sum }

    def stop
      @stop = true
      @threads.each(&:join)
    end

    private

    def watch
      until @stop
        worker = nil
        begin
          HttpClient.open(@port) do |client|
            until @stop
              response = client.get("/")
              worker = note(response)
              break if response.headers["connection"] == "close"
            end
          end
        rescue SystemCallError, IOError => e
          @lock.synchronize { @losses << [worker, e.class] }
          break if e.is_a?(Errno::ECONNREFUSED)
        end
      end
    end

    def note(response)
      raise IOError, "status #{response.status}" unless response.status == 200
      response.body.to_i.tap { |pid| @lock.synchronize { @answered[pid] += 1 } }
    end
  end

  # Kills all threads but its own and the main one, as a careless application does.
  CARELESS_APP = <<~RUBY
    run(lambda do |env|
      (Thread.list - [Thread.main, Thread.current]).each(&:kill) if env["PATH_INFO"] == "/kill"
      sleep 0.01 until env["PATH_INFO"] != "/wait" || File.exist?("open")
      [200, { "content-type" => "text/plain" }, ["done"]]
    end)
  RUBY

  ["workers 0", "workers 1"].each do |processes|
    define_method("test_an_application_that_kills_all_threads_with_#{processes}") do
      server = boot(rackup: CARELESS_APP, config: "#{processes}\nthreads 1..8")
      assert_equal "done", server.get("/kill").body
      server.wait_line(/the support thread was killed/)
      clients = Array.new(5) { RawClient.new(server.port).write("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n") }
      # The last one needs a thread that was started since.
      assert_equal "done", server.get("/quick").body
      server.write("open", "")
      assert_equal ["done"], clients.map { |client| client.read_response.body }.uniq
      clients.each(&:close)
      assert_equal 0, server.stop
    end
  end

  def test_rolling_kills_lose_no_request_of_surviving_workers
    server = boot(rackup: APP, config: CONFIG)
    witnesses = Witnesses.new(server.port, CLIENTS)
    killed = Array.new(ROUNDS) do |round|
      served = witnesses.answered
      server.eventually("some load") { witnesses.answered > served + 200 }
      pid = server.workers[round % 2].tap { |victim| server.signal("KILL", victim) }
      server.wait_line(/worker ready/, count: 3 + round)
      pid
    end
    witnesses.stop
    # A connection that had no answer yet may have been in the accept queue of the one that was killed.
    assert_empty witnesses.losses.map(&:first).compact - killed
    assert_operator witnesses.losses.size, :<=, ROUNDS * CLIENTS
    assert_empty witnesses.losses.map(&:last) - [EOFError, Errno::ECONNRESET, Errno::EPIPE]
    assert_equal 0, server.stop
  end

  # Both at once: a new generation comes while the old one is shot at.
  def test_a_kill_during_a_phased_restart
    server = boot(rackup: APP, config: CONFIG)
    witnesses = Witnesses.new(server.port, CLIENTS)
    old = server.workers
    server.eventually("some load") { witnesses.answered > 200 }
    server.signal("USR1")
    server.wait_line(/preloader ready/)
    server.signal("KILL", old.last) if server.alive?(old.last)
    server.wait_line(/phased restart done/)
    server.eventually("the new ones serve") { witnesses.answered(except: old) > 200 }
    witnesses.stop
    assert_empty witnesses.losses.map(&:first).compact - [old.last]
    assert_empty server.workers & old
    assert_equal 0, server.stop
  end

  def test_term_under_load_responds_to_all_accepted_requests
    server = boot(rackup: APP, config: CONFIG)
    witnesses = Witnesses.new(server.port, CLIENTS)
    server.eventually("some load") { witnesses.answered > 500 }
    server.signal("TERM")
    assert_equal 0, server.wait_exit
    witnesses.stop
    # Those that came too late were told so by the kernel.
    assert_empty witnesses.losses.reject { |worker, why| worker.nil? || why == Errno::ECONNREFUSED }
  end

  # `kill -9` of everything, then the same port, pidfile and control socket again.
  def test_a_clean_start_after_everything_was_killed
    port = free_port
    config = "#{CONFIG}\nbind \"tcp://127.0.0.1:#{port}\"\npidfile \"tmp/server.pid\""
    server = boot(rackup: APP, config: config)
    witnesses = Witnesses.new(port, CLIENTS)
    server.eventually("some load") { witnesses.answered > 200 }
    [server.pid, *server.workers].each { |pid| server.signal("KILL", pid) }
    server.wait_all_gone
    witnesses.stop
    assert_path_exists server.path("tmp/server.pid")
    server.start.ready
    assert_equal server.pid, server.read("tmp/server.pid").to_i
    assert_includes server.workers, HttpClient.open(port) { |client| client.get("/").body.to_i }
    assert_equal 0, server.stop
    server.wait_all_gone
    refute_path_exists server.path("tmp/server.pid")
  end

  private

  # Our own bind, so that the port is known before and the same after.
  def free_port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }
end
