# frozen_string_literal: true

require "test_helper"
require "support/http_client"
require "support/open_files"
require "support/tls_server"

# What must not stop others: handshakes that never end, and files of certificates that come and go.
class TlsSurvivalTest < Minitest::Test
  include ServerTest
  include TlsServer

  SLOW = 2_000

  def test_thousands_of_handshakes_that_do_not_go_on_keep_nobody_out
    OpenFiles.allow(4 * SLOW)
    # No time ends them, so that only the bound on their number does.
    server = serve("workers 0\nconstants_for_tests tls_handshake_timeout_s: 3600.0\nweb { idle_timeout_s 3600 }")
    kept = client(server, timeout_s: 60)
    before = kept.write(request("/")).read_response.body
    slow = Array.new(SLOW) { |at| RawClient.new(port(server), timeout_s: 60).write(at.even? ? "" : "\x16\x03\x01") }
    assert_equal %w[hello hello], [before, kept.write(request("/")).read_response.body]
    10.times { assert_equal "hello", client(server, timeout_s: 60).write(request("/")).read_response.body }
    # Those beyond the bound are closed, the oldest first.
    slow.first(SLOW - 1000).each { |one| assert one.closed_by_server? }
    assert_operator server.status.dig("workload", "web", "connections"), :<=, 1020
    # Nor do they hold up a stop.
    assert_equal 0, server.stop
  ensure
    slow&.each(&:close)
  end

  def test_files_that_cannot_be_used_come_and_go_under_load
    server = serve("workers 0\nconstants_for_tests tls_reload_s: 3600.0")
    @tls.write("other")
    load = ClientLoad.new(port(server), tls: @tls.context)
    fault(server, load, /app.key: No such file/) { File.delete(@tls.path("app.key")) }
    fault(server, load, /it is not the key of/) { FileUtils.cp(@tls.path("other.key"), @tls.path("app.key")) }
    fault(server, load, /it expired on/) { @tls.write("app", days: -1) }
    assert_equal "/CN=localhost", subject(server)
    @tls.write("app", subject: "/CN=second")
    server.signal("HUP")
    server.wait_line(%r{loaded the certificates of https://})
    assert_equal "/CN=second", subject(server)
    more(server, load)
    assert_empty load.stop.failures
    assert_equal 0, server.stop
  end

  private

  # New connections get the old certificate, and open ones go on.
  def fault(server, load, reason)
    yield
    server.signal("HUP")
    server.wait_line(/can't use the new certificates of .*the old ones stay: .*#{reason}/)
    assert_equal "/CN=localhost", subject(server)
    more(server, load)
  end

  def more(server, load)
    answered = load.answered
    server.eventually("requests are answered") { load.answered > answered + 20 }
  end
end
