# frozen_string_literal: true

require "test_helper"
require "socket"
require "support/open_files"
require "support/server"

# The limit of open files: raised for the server, kept for others, and not used up by clients.
class OpenFilesTest < Minitest::Test
  include ServerTest

  SERVICE = "service \"files\", [\"/bin/sh\", \"-c\", \"echo soft limit $(ulimit -Sn); read line\"]\n"
  LIMITS = 'run ->(_) { [200, {}, [Process.getrlimit(:NOFILE).join(" ")]] }'
  # Needs as many files as an application with a database and a template.
  READER = 'run ->(_) { [200, {}, [Array.new(50) { File.open("config.ru") }.each(&:close).size.to_s]] }'

  def test_the_soft_limit_is_raised_and_services_get_the_old_one
    server = boot(rackup: LIMITS, config: "workers 1\n#{SERVICE}", inherit: { rlimit_nofile: [300, 2000] })
    assert_equal "2000 2000", server.get.body
    server.wait_line(/soft limit 300$/, timeout_s: 60)
    assert_match(/a process has 1500 connections at most, not connections_max \(10000\): only 2000 files may be open/,
                 server.log)
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: 60)
    server.wait_line(/soft limit 300$/, count: 2, timeout_s: 60)
    assert_equal "2000 2000", server.get.body
    assert_equal 0, server.stop(timeout_s: 60)
  end

  [0, 1].each do |workers|
    define_method("test_clients_that_send_nothing_leave_files_to_#{workers.zero? ? "a_single_process" : "a_worker"}") do
      OpenFiles.allow(1000)
      server = boot(rackup: READER, config: "workers #{workers}", inherit: { rlimit_nofile: [256, 256] })
      silent = Array.new(400) { TCPSocket.new("127.0.0.1", server.port) }
      assert_equal %w[50 50 50], Array.new(3) { server.get.body }
      assert_nil silent.first.read(1), "it has made room"
      assert_match(/WARN  closed \d+ idle connections to make room for new ones: connections_max \(128\)/, server.log)
      refute_match(/Too many open files/, server.log)
      assert_equal 0, server.stop(timeout_s: 60)
    ensure
      silent&.each(&:close)
    end
  end
end
