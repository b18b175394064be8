# frozen_string_literal: true

require "test_helper"
require "support/tls_server"

# TLS sessions that clients continue: at other workers and after restarts, but not under other rules.
class TlsSessionsTest < Minitest::Test
  include ServerTest
  include TlsServer

  # Whichever worker made the ticket.
  def test_sessions_are_continued_by_every_worker
    [OpenSSL::SSL::TLS1_2_VERSION, OpenSSL::SSL::TLS1_3_VERSION].each do |version|
      server = serve("workers 3", rackup: "run ->(_) { [200, {}, [Process.pid.to_s]] }")
      pids = Hash.new(0)
      session = nil
      server.eventually("all workers have continued a session") do
        session, pid = continue(port(server), version, session)
        pids[pid] += 1 if pid
        pids.size == 3
      end
    end
  end

  def test_sessions_are_continued_after_a_full_restart
    ["workers 0", "workers 1"].each do |workers|
      server = serve(workers)
      versions = [OpenSSL::SSL::TLS1_2_VERSION, OpenSSL::SSL::TLS1_3_VERSION]
      sessions = versions.to_h { |version| [version, continue(port(server), version, nil).first] }
      [2, 3].each do |count|
        server.signal("USR2")
        server.wait_line(/ ready  listen=/, count: count)
        versions.each { |version| sessions[version], = continue(port(server), version, sessions.fetch(version)) }
      end
      assert_equal 0, server.stop
    end
  end

  # It would have passed the check without having been checked.
  def test_a_session_of_an_open_bind_is_not_continued_where_clients_need_a_certificate
    forced = { **@tls.pair("app"), verify_mode: "force_peer", ca: @tls.path("ca.pem") }
    server = serve("workers 0\n#{bind(**forced).sub("0.1", "0.2")}")
    open, closed = server.log.scan(%r{https://[^ "]+?:(\d+)}).flatten.first(2).map(&:to_i)
    [OpenSSL::SSL::TLS1_2_VERSION, OpenSSL::SSL::TLS1_3_VERSION].each do |version|
      session, = continue(open, version, nil)
      assert continue(open, version, session).last
      refused { continue(closed, version, session, host: "127.0.0.2") }
    end
  end

  # @return [Array] a new session, and the worker's pid if it has continued the given one
  def continue(port, version, session, host: "127.0.0.1")
    sessions = []
    context = @tls.context.tap do |one|
      one.min_version = one.max_version = version
      one.session_cache_mode = OpenSSL::SSL::SSLContext::SESSION_CACHE_CLIENT
      one.session_new_cb = ->((_, made)) { sessions << made }
    end
    socket = OpenSSL::SSL::SSLSocket.new(TCPSocket.new(host, port), context)
    socket.sync_close = true
    socket.session = session if session
    socket.connect
    socket.write(request("/", "Connection: close"))
    pid = socket.read[/[^\r\n]+\z/]
    flunk "the session was not continued by #{pid}" if session && !socket.session_reused?
    [sessions.last, session && pid]
  ensure
    socket&.close
  end
end
