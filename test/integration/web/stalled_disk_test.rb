# frozen_string_literal: true

require "test_helper"
require "digest/md5"
require "open3"
require_relative "../../support/raw_client"
require_relative "../../support/server"

# A disk that does not respond must stop nobody but the request that needs it. A preloaded library plays that disk.
class StalledDiskTest < Minitest::Test
  include ServerTest

  # While the file `stall` exists, writes at an offset and opens of *.stuck wait, and say so with the file `waiting`.
  DISK = <<~C
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <stdarg.h>
    #include <string.h>
    #include <unistd.h>

    static void stall(void) {
      if (access("stall", F_OK) == 0) close(creat("waiting", 0600));
      while (access("stall", F_OK) == 0) usleep(1000);
    }

    ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset) {
      stall();
      return ((ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, bytes, len, offset);
    }

    int open64(const char *path, int flags, ...) {
      va_list more;
      va_start(more, flags);
      int mode = va_arg(more, int);
      va_end(more);
      size_t len = strlen(path);
      if (len > 6 && strcmp(path + len - 6, ".stuck") == 0) stall();
      return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64"))(path, flags, mode);
    }
  C

  APP = <<~RUBY
    require "digest/md5"
    parts = Enumerator.new { |all| 800.times { |i| all << (i % 10).to_s * 20_000 } }
    file = Struct.new(:to_path).new(File.expand_path("page.stuck", __dir__))
    run lambda { |env|
      case env["PATH_INFO"]
      when "/stream" then [200, {}, parts]
      when "/parts" then [200, {}, parts.to_a]
      when "/file" then [200, {}, file]
      when "/digest" then [200, {}, [Digest::MD5.hexdigest(env["rack.input"].read)]]
      else [200, {}, ["hello"]]
      end
    }
  RUBY
  BODY = Array.new(800) { |i| (i % 10).to_s * 20_000 }.join

  def test_a_stream_that_waits_for_the_disk_stops_no_other_request
    assert_served_beside_stalled("/stream", BODY)
  end

  def test_a_large_array_that_waits_for_the_disk_stops_no_other_request
    assert_served_beside_stalled("/parts", BODY)
  end

  def test_a_file_that_can_not_be_opened_stops_no_other_request
    assert_served_beside_stalled("/file", "the page")
  end

  # More than wait for the disk at once; the head of the body says who sent it.
  def test_large_request_bodies_that_wait_for_the_disk_stop_no_other_request
    server = boot_on_stalled_disk
    bodies = Array.new(6) { |number| "#{number}#{BODY}" }
    clients = bodies.map do |body|
      client = RawClient.new(server.port)
      [client, Thread.new { client.write(post(body)) }]
    end
    server.eventually("the disk stalls") { File.exist?(server.path("waiting")) }
    20.times { assert_equal "hello", server.get.body }
    File.delete(server.path("stall"))
    digests = clients.map { |client, sending| sending.join && client.read_response.body }
    assert_equal bodies.map { |body| Digest::MD5.hexdigest(body) }, digests
  ensure
    FileUtils.rm_f(server.path("stall"))
  end

  def test_a_server_stops_although_a_request_body_waits_for_the_disk
    server = boot_on_stalled_disk
    client = RawClient.new(server.port)
    sending = Thread.new do
      client.write(post(BODY))
    rescue SystemCallError
      nil # The server has ended.
    end
    server.eventually("the disk stalls") { File.exist?(server.path("waiting")) }
    assert_equal 0, server.stop
    sending.join
  ensure
    FileUtils.rm_f(server.path("stall"))
  end

  private

  def post(body) = "POST /digest HTTP/1.1\r\nHost: a\r\nContent-Length: #{body.size}\r\n\r\n#{body}"

  def assert_served_beside_stalled(path, body)
    server = boot_on_stalled_disk
    RawClient.open(server.port, receive_bytes_max: 4096) do |client|
      client.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
      server.eventually("the disk stalls") { File.exist?(server.path("waiting")) }
      20.times { assert_equal "hello", server.get.body }
      File.delete(server.path("stall"))
      assert_equal body, client.read_response.body
    end
  ensure
    FileUtils.rm_f(server.path("stall"))
  end

  def boot_on_stalled_disk
    config = "memory { allocator :system }\nworkers 0\nthreads 1..4\nshutdown_timeout_s 5"
    server = launch(rackup: APP, config: config) do |made|
      library = made.path("disk.so")
      _, status = Open3.capture2e("cc", "-shared", "-fPIC", "-o", library, "-xc", "-", "-ldl", stdin_data: DISK)
      assert_predicate status, :success?
      made.preload(library)
      made.write("page.stuck", "the page")
    end
    server.ready.write("stall", "")
    server
  end
end
