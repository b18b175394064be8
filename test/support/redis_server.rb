# frozen_string_literal: true

require "fileutils"
require "redis"
require "socket"
require "tmpdir"

# A real redis-server of its own on the loopback, in a scratch directory: what was stored outlives a restart.
class RedisServer
  WAIT_S = 20
  # What is acknowledged is on the disk.
  DURABLE = { "appendonly" => "yes", "appendfsync" => "always", "save" => "" }.freeze
  # Ports tried, as somebody else may take a free one before Redis does.
  TRIES = 5

  attr_reader :dir, :pid, :port

  # @param options [Hash{String=>Object}] of redis.conf
  # @param password [String, nil]
  def initialize(options = {}, password: nil)
    @dir = Dir.mktmpdir("chaton-redis")
    @password = password
    @options = { "dir" => @dir, "bind" => "127.0.0.1", "unixsocket" => socket, **DURABLE, **options }
    @options["requirepass"] = password if password
  end

  # @return [self] that answers
  def start
    @port ? launch(@port) : try_ports
    self
  end

  # @param with [String, nil] another password than the right one
  # @return [String] for configurations and REDIS_URL
  def url(db: 0, with: @password)
    "redis://#{":#{with}@" if with}127.0.0.1:#{@port}/#{db}"
  end

  # @return [String] path of its unix socket
  def socket = File.join(@dir, "redis.sock")

  # @return [Redis] a connection of the caller's own
  def client = Redis.new(url: url, timeout: WAIT_S)

  # Asks one thing on a connection made for it.
  def call(*command)
    redis = client
    redis.call(command)
  ensure
    redis&.close
  end

  # Ends it in an orderly way.
  def stop = finish("TERM")

  # Ends it on the spot.
  def kill = finish("KILL")

  # It answers nobody, and keeps its connections.
  def pause = Process.kill("STOP", @pid)

  def resume = Process.kill("CONT", @pid)

  # @return [String] what it wrote itself
  def log = File.read(File.join(@dir, "redis.log"))

  # Ends it, by its pid, and removes its directory.
  def close
    kill if @pid
    FileUtils.remove_entry(@dir)
  end

  private

  def try_ports
    TRIES.times do
      launch(free_port)
      return
    rescue Errno::EADDRINUSE
      next
    end
    raise "no free port for redis-server in #{TRIES} tries"
  end

  def free_port
    probe = TCPServer.new("127.0.0.1", 0)
    probe.addr[1]
  ensure
    probe&.close
  end

  def launch(port)
    words = @options.merge("port" => port).flat_map { |name, value| ["--#{name}", value.to_s] }
    @pid = Process.spawn("redis-server", *words, out: File.join(@dir, "redis.log"), err: %i[child out])
    @waiter = Process.detach(@pid)
    @port = port
    wait_until_it_answers
  end

  def wait_until_it_answers
    deadline = now + WAIT_S
    until answers?
      ended = !@waiter.alive?
      @pid = nil if ended
      raise Errno::EADDRINUSE, @port.to_s if ended && log.include?("already in use")
      raise "redis-server is not ready; it wrote:\n#{log}" if ended || now > deadline

      sleep 0.01
    end
  end

  # It may still be loading what was stored.
  def answers?
    call("PING") == "PONG"
  rescue Redis::BaseError
    false
  end

  def finish(signal)
    Process.kill("CONT", @pid)
    Process.kill(signal, @pid)
    raise "redis-server has not ended within #{WAIT_S} s" unless @waiter.join(WAIT_S)

    @pid = nil
  rescue Errno::ESRCH
    @pid = nil
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
