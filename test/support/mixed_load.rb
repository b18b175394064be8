# frozen_string_literal: true

require_relative "raw_client"

# Plays every kind of client in turn, well-behaved and misbehaving, from a few threads. {APP} is the application for it.
class MixedLoad
  CHUNKS = 50
  BIG_BYTES = 300_000

  # An application that counts its opened and closed bodies.
  APP = <<~RUBY.freeze
    class Body
      COUNTS = Hash.new(0)
      LOCK = Mutex.new
      def self.count(what) = LOCK.synchronize { COUNTS[what] += 1 }

      def self.counts = COUNTS.values_at(:opened, :closed, :closed_again).join(" ")

      def initialize(chunks)
        @chunks = chunks
        Body.count(:opened)
      end

      def each(&block) = @chunks.each(&block)

      def close
        Body.count(@closed ? :closed_again : :closed)
        @closed = true
      end
    end

    CHUNK = "c" * 1_000
    BIG = "b" * #{BIG_BYTES}
    File.write("file", BIG)
    run(lambda do |env|
      body = case env["PATH_INFO"]
             when "/stream" then Body.new([CHUNK] * #{CHUNKS})
             when "/endless" then Body.new([BIG] * 1_000)
             when "/held" then sleep(0.005) && Body.new(["held"])
             when "/big" then [BIG]
             when "/file" then File.open("file")
             when "/echo" then Body.new([env["rack.input"].read])
             when "/counts" then [Body.counts]
             else ["hello"]
             end
      [200, { "content-type" => "application/octet-stream" }, body]
    end)
  RUBY

  KINDS = %i[kept_alive one_shot pipelined head chunked_upload large_upload streamed file aborted_upload
             aborted_head aborted_download gone_before].freeze

  # @param port [Integer]
  def initialize(port)
    @port = port
  end

  # @param rounds [Integer] how often each thread plays each kind
  # @raise [StandardError] the first error of a client
  def run(rounds:, threads: 2)
    players = Array.new(threads) do |n|
      Thread.new { rounds.times { KINDS.rotate(n * 5).each { |kind| send(kind) } } }
    end
    players.each { |thread| thread.report_on_exception = false }.each(&:join)
  end

  private

  def get(path, verb: "GET", more: "") = "#{verb} #{path} HTTP/1.1\r\nHost: h\r\n#{more}\r\n"

  def open(&block) = RawClient.open(@port, &block)

  def expect(wanted, got)
    raise "#{wanted.to_s[0, 50]} expected, got #{got.to_s[0, 50]}" unless wanted == got
  end

  def kept_alive = open { |client| 5.times { expect("hello", client.write(get("/")).read_response.body) } }

  def one_shot
    open { |client| expect("hello", client.write(get("/", more: "Connection: close\r\n")).read_response.body) }
  end

  def pipelined
    open do |client|
      client.write(get("/") * 5)
      5.times { expect("hello", client.read_response.body) }
    end
  end

  def head
    open do |client|
      %w[/ /stream /file].each do |path|
        expect(200, client.write(get(path, verb: "HEAD")).read_response(head: true).status)
      end
      expect("hello", client.write(get("/")).read_response.body)
    end
  end

  def chunked_upload
    open do |client|
      client.write(get("/echo", verb: "POST", more: "Transfer-Encoding: chunked\r\n"))
      client.write("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
      expect("abcde", client.read_response.body)
    end
  end

  # Uploads more than the server keeps in memory, so that it uses a temporary file.
  def large_upload
    open do |client|
      client.write(get("/echo", verb: "POST", more: "Content-Length: #{BIG_BYTES}\r\n") + ("u" * BIG_BYTES))
      expect(BIG_BYTES, client.read_response.body.count("u"))
    end
  end

  def streamed
    open { |client| expect(CHUNKS * 1_000, client.write(get("/stream")).read_response.body.size) }
  end

  def file
    open { |client| %w[/file /big].each { |path| expect(BIG_BYTES, client.write(get(path)).read_response.body.size) } }
  end

  def aborted_upload
    leave { |client| client.write("#{get("/echo", verb: "POST", more: "Content-Length: 100000\r\n")}abc") }
  end

  def aborted_head = leave { |client| client.write("GET / HTTP/1.1\r\nHost: h\r\nX-") }

  def aborted_download
    %w[/endless /big /file /stream].each { |path| leave { |client| client.write(get(path)).read_some(100) } }
  end

  def gone_before = %w[/held /echo /stream].each { |path| leave { |client| client.write(get(path)) } }

  # Closes the connection in mid-request, every second time with a reset.
  def leave
    client = RawClient.new(@port)
    yield client
    client.close(reset: (@left = !@left))
  end
end
