# frozen_string_literal: true

require "fileutils"
require "redis"
require "socket"
require "tmpdir"

# A real redis-server on the loopback, with its data in a scratch directory, so that it survives a restart.
class RedisServer
  WAIT_S = 20
  # Acknowledged writes are on the disk.
  DURABLE = { "appendonly" => "yes", "appendfsync" => "always", "save" => "" }.freeze
  # Tries with other ports, because another process may take a free port before Redis does.
  TRIES = 5
  SERVER = ENV.fetch("CHATON_TEST_REDIS_SERVER", "redis-server")

  attr_reader :dir, :pid, :port

  # @param options [Hash{String=>Object}] of redis.conf
  # @param password [String, nil]
  # @param port [Integer, nil] nil: a free one; 0: none, it is reached by its socket file only
  def initialize(options = {}, password: nil, port: nil)
    @dir = Dir.mktmpdir("chaton-redis")
    @password = password
    @port = port
    @options = { "dir" => @dir, "bind" => "127.0.0.1", "unixsocket" => socket, **DURABLE, **options }
    @options["requirepass"] = password if password
  end

  # @return [self] once it responds
  def start
    @port ? launch(@port) : try_ports
    self
  end

  # @param with [String, nil] the password, by default the right one
  # @return [String] for configurations and REDIS_URL
  def url(db: 0, with: @password)
    return "unix://#{socket}" if @port == 0

    "redis://#{":#{with}@" if with}127.0.0.1:#{@port}/#{db}"
  end

  # @return [String] path of its unix socket
  def socket = File.join(@dir, "redis.sock")

  # @return [Redis] a new connection
  def client = Redis.new(**(@port == 0 ? { path: socket } : { url: url }), timeout: WAIT_S)

  # Sends one command on a connection of its own.
  def call(*command)
    redis = client
    redis.call(command)
  ensure
    redis&.close
  end

  # Stops it gracefully.
  def stop = finish("TERM")

  # Kills it.
  def kill = finish("KILL")

  # Stops the process, so that it does not respond but keeps its connections.
  def pause = Process.kill("STOP", @pid)

  def resume = Process.kill("CONT", @pid)

  # @return [String] its output
  def log = File.read(File.join(@dir, "redis.log"))

  # Kills it by its pid, and removes its directory.
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
    @pid = Process.spawn(SERVER, *words, out: File.join(@dir, "redis.log"), err: %i[child out])
    @waiter = Process.detach(@pid)
    @port = port
    wait_until_ready
  end

  def wait_until_ready
    deadline = now + WAIT_S
    until responds?
      ended = !@waiter.alive?
      @pid = nil if ended
      raise Errno::EADDRINUSE, @port.to_s if ended && log.include?("already in use")
      raise "redis-server is not ready; it wrote:\n#{log}" if ended || now > deadline

      sleep 0.01
    end
  end

  # Fails while Redis loads its data.
  def responds?
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
