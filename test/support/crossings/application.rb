# frozen_string_literal: true

require "rack/utils"
require "socket"
require_relative "factors"

module Crossings
  # The application of all cases. The path names the body; the query names the case's number, the size and the failure.
  class Application
    def call(env)
      query = Rack::Utils.parse_query(env["QUERY_STRING"])
      return [200, { "content-type" => "text/plain" }, ["hello #{query["n"]}"]] unless query["id"]
      Scene.new(env, query).answer
    end
  end

  # The application's end of what it tells the test while it answers one request.
  class Stage
    def initialize(id)
      @socket = UNIXSocket.new(ENV.fetch("CROSSINGS_STAGE"))
      tell(id)
    end

    def tell(word) = @socket.puts(word)

    # Waits until the test lets it pass.
    def gate(name)
      tell(name)
      @socket.gets
    end

    def close = @socket.close
  end

  # One request.
  class Scene
    class Asked < StandardError; end

    HEADERS = { "content-type" => "text/plain", "etag" => ETAG }.freeze

    def initialize(env, query)
      @env = env
      @failure = query.fetch("failure")
      @text = TEXTS.fetch(query.fetch("size").to_i)
      @stage = Stage.new(query.fetch("id"))
      @body = File.basename(env["PATH_INFO"])
      (env["rack.after_reply"] ||= []) << @stage.method(:close)
    end

    def answer
      @stage.gate("arrived")
      raise Asked, "before" if @failure == "before"
      status, headers, body = public_send(@body)
      [status, headers.merge("x-remote" => @env["REMOTE_ADDR"]), body]
    end

    def array = [200, HEADERS.dup, @failure == "close" ? Listed.new(self, [@text]) : [@text]]
    def each = [200, HEADERS.dup, Produced.new(self)]
    def sized = [200, HEADERS.merge("content-length" => @text.bytesize.to_s), Produced.new(self)]
    def call = [200, HEADERS.dup, Streamed.new(self)]
    def path = [200, HEADERS.dup, Filed.new(self, File.expand_path("#{@text.bytesize}.txt"))]
    def events = [200, HEADERS.merge("content-type" => "text/event-stream"), Produced.new(self)]
    def partial = [200, HEADERS.merge("rack.hijack" => method(:write_raw)), Closable.new(self)]
    def empty = [204, {}, Produced.new(self)]
    def unchanged = [304, { "etag" => ETAG }, Produced.new(self)]

    def full
      return array unless @env["rack.hijack?"]
      io = @env["rack.hijack"].call
      begin
        io.write("HTTP/1.1 200 OK\r\nContent-Length: #{@text.bytesize}\r\nConnection: close\r\n\r\n")
        produce { |part| io.write(part) } unless @env["REQUEST_METHOD"] == "HEAD"
      rescue Errno::EPIPE, Errno::ECONNRESET
        @stage.tell("left")
      ensure
        io.close
      end
      [200, {}, Closable.new(self)]
    end

    def upgrade
      return required unless get? && @env["rack.protocol"]&.include?("echo")
      [200, { "rack.protocol" => "echo" }, Streamed.new(self, echo: true)]
    end

    def switch
      return required unless get? && @env["HTTP_UPGRADE"] == "echo"
      hijack = lambda do |io|
        io.write(io.gets)
        write_raw(io)
      end
      [101, { "connection" => "upgrade", "upgrade" => "echo", "rack.hijack" => hijack }, Closable.new(self)]
    end

    # RFC 9110 section 15.5.22
    def required
      [426, { "content-type" => "text/plain", "connection" => "upgrade", "upgrade" => "echo" },
       Listed.new(self, ["upgrade\n"])]
    end

    # Yields the parts of the body. The first one is of one byte, and one is empty.
    def produce(&write)
      raise Asked, "first" if @failure == "first"
      half = @text.bytesize / 2
      [@text[0, 1], "", *@text[1...half].scan(/.{1,8000}/)].each(&write)
      @stage.gate("middle")
      raise Asked, "middle" if @failure == "middle"
      @text[half..].scan(/.{1,50000}/).each(&write)
    end

    def closed
      @stage.tell("closed")
      raise Asked, "close" if @failure == "close"
    end

    private

    def get? = @env["REQUEST_METHOD"] == "GET"

    def write_raw(io)
      produce { |part| io.write(part) }
      io.close
    end
  end

  # Bodies of each kind, which note their closing.
  Closable = Struct.new(:scene) do
    def each = nil
    def close = scene.closed
  end

  class Produced < Closable
    def each(&block) = scene.produce(&block)
  end

  class Listed < Closable
    def initialize(scene, parts)
      super(scene)
      @parts = parts
    end

    def each(&block) = @parts.each(&block)

    # From Rack 3 on it closes the body.
    def to_ary
      close if Rack.release >= "3"
      @parts
    rescue Scene::Asked
      @parts
    end
  end

  class Filed < Closable
    def initialize(scene, path)
      super(scene)
      @path = path
    end

    def to_path = @path
    def each = raise("the server did not read the file by itself")
  end

  class Streamed
    def initialize(scene, echo: false)
      @scene = scene
      @echo = echo
    end

    def call(stream)
      stream.write(stream.gets) if @echo
      @scene.produce { |part| stream.write(part) }
      stream.close
    end

    def close = @scene.closed
  end
end
