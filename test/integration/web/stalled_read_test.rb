# frozen_string_literal: true

require "test_helper"
require "open3"
require_relative "../../support/stalling_files"
require_relative "../../support/tls_server"

# The IO thread reads no file that is not in memory: a mount that does not answer stops only those who ask for its
# files.
class StalledReadTest < Minitest::Test
  include ServerTest
  include TlsServer

  CONTENT = Random.new(1).bytes(3_000_000)
  APP = <<~RUBY
    file = Struct.new(:to_path).new(File.expand_path("mount/slow.bin", __dir__))
    run ->(env) { [200, {}, env["PATH_INFO"] == "/to_path" ? file : ["hello"]] }
  RUBY
  ASKED = [%w[http --http1.1], %w[http --http2-prior-knowledge], %w[https --http1.1], %w[https --http2]].freeze

  def test_a_mount_that_does_not_answer_stops_no_other_request
    server = boot_on_mount
    # More at once than threads that wait for the disk.
    clients = ASKED.product(%w[slow.bin to_path]).map do |(scheme, protocol), path|
      Thread.new { curl(server, scheme, protocol, path) }
    end
    server.eventually("a read waits") { @files.waiting? }
    20.times { assert_equal "hello", server.get.body }
    assert_equal ["hello"], ASKED.map { |scheme, protocol| curl(server, scheme, protocol, "") }.uniq
    @files.go_on
    assert_equal [true], clients.map { |client| client.value == CONTENT }.uniq
    assert_equal 0, server.stop
  end

  # Even of a file that the kernel knows.
  def test_an_open_that_waits_stops_no_other_request
    server = boot_on_mount(opens_wait: true)
    reading = RawClient.new(server.port).write(request("/slow.bin"))
    server.eventually("a read waits") { @files.waiting? }
    opening = RawClient.new(server.port).write(request("/slow.bin"))
    RawClient.open(server.port) do |client|
      # Nobody looks for a file.
      20.times { assert_equal "hello", client.write("POST / HTTP/1.1\r\nHost: a\r\n\r\n").read_response.body }
    end
    @files.go_on
    assert_equal [true], [reading, opening].map { |client| client.read_response.body == CONTENT }.uniq
    assert_equal 0, server.stop
  end

  def test_a_slow_client_gets_a_file_that_is_on_no_local_disk
    server = boot_on_mount
    @files.go_on
    RawClient.open(server.port, receive_bytes_max: 4096) do |client|
      client.write(request("/slow.bin"))
      assert client.read_response.body == CONTENT
    end
    assert_equal 0, server.stop
  end

  def test_files_that_are_not_in_memory_are_sent
    server = boot(rackup: APP, config: config) { |new| new.write("mount/slow.bin", CONTENT) }
    ASKED.product(%w[slow.bin to_path]).each do |(scheme, protocol), path|
      File.open(server.path("mount/slow.bin")) do |file|
        file.fdatasync
        file.advise(:dontneed)
      end
      assert CONTENT == curl(server, scheme, protocol, path), [scheme, protocol, path]
    end
    assert_equal 0, server.stop
  end

  private

  def boot_on_mount(**options)
    server = launch(rackup: APP, config: config) { |new| @files = StallingFiles.new(new.dir, CONTENT, **options) }
    server.ready
    @files.stall
    server
  end

  def config
    "workers 0\nshutdown_timeout_s 5\nbind 'tcp://127.0.0.1:0'\n#{bind(**@tls.pair("app"))}\nweb { static 'mount' }"
  end

  def teardown
    @files&.close
    super
  end

  def curl(server, scheme, protocol, path)
    port = scheme == "https" ? port(server) : server.port
    url = "#{scheme}://localhost:#{port}/#{path}"
    body, = Open3.capture2("curl", "-sk", protocol, "--max-time", "40", url, binmode: true)
    body
  end
end
