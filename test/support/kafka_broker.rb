# frozen_string_literal: true

require "fileutils"
require "open3"
require "socket"
require "tmpdir"

# A real Kafka on the loopback (see test/support/kafka/broker). The whole suite shares `KafkaBroker.shared`; a test that
# stops, kills or pauses a broker starts its own. Kafka does not create topics automatically here.
class KafkaBroker
  WAIT_S = 60
  # Tries with other ports, because another process may take a free port before Kafka does.
  TRIES = 5
  SCRIPT = File.expand_path("kafka/broker", __dir__)
  # Credentials of the listeners with SASL.
  USERNAME = "chaton"
  PASSWORD = "secret"

  # @return [String] scratch directory: pid, broker.log, server.properties, ca.pem, data
  attr_reader :dir
  # @return [Integer, nil]
  attr_reader :pid
  # @return [Integer] of the listener without credentials; the others are nil unless requested
  attr_reader :port, :sasl_port, :tls_port, :sasl_tls_port

  class << self
    # @return [KafkaBroker, ExternalBroker] the broker of CHATON_TEST_KAFKA=host:port, else a broker that this process
    #   starts on first use and stops at exit
    def shared
      @shared ||= ENV["CHATON_TEST_KAFKA"] ? ExternalBroker.new(ENV.fetch("CHATON_TEST_KAFKA")) : own_until_exit
    end

    private

    def own_until_exit
      owner = Process.pid
      broker = new.start
      at_exit { broker.close if Process.pid == owner }
      broker
    end
  end

  # A broker that was started elsewhere.
  ExternalBroker = Struct.new(:address) do
    # @return [String] for configurations
    def url = "kafka://#{address}"
    # @return [String]
    def host = address[/\A(.+):\d+\z/, 1]
    # @return [Integer]
    def port = Integer(address[/\d+\z/])
  end

  # @param sasl [Boolean] also a listener with SASL
  # @param tls [Boolean] also a listener with TLS; with `sasl` one with both, too
  # @param settings [Hash{String=>Object}] of server.properties
  def initialize(sasl: false, tls: false, settings: {})
    @dir = Dir.mktmpdir("chaton-kafka")
    @sasl = sasl
    @tls = tls
    @settings = settings
  end

  # Starts the broker. A second start uses the same ports and data.
  # @return [self] once it responds
  # @raise [RuntimeError] with the broker's output
  def start
    @port ? launch : try_ports
    self
  end

  def host = "127.0.0.1"
  # @return [String] host:port
  def address = "#{host}:#{port}"
  # @return [String] for configurations
  def url = "kafka://#{address}"
  # @return [String] of the listener with SASL
  def sasl_url = "kafka://#{host}:#{sasl_port}"
  # @return [String] of the listener with TLS
  def tls_url = "kafka+ssl://#{host}:#{tls_port}"
  # @return [String] of the listener with both
  def sasl_tls_url = "kafka+ssl://#{host}:#{sasl_tls_port}"
  # @return [String] certificate of its authority
  def ca_file = File.join(@dir, "ca.pem")
  # @return [String] its output
  def log = File.read(File.join(@dir, "broker.log"))

  # Stops it gracefully.
  def stop
    run("stop", @dir)
    @pid = nil
  end

  # Kills it.
  def kill
    Process.kill("KILL", @pid)
    wait_until_gone
    @pid = nil
  end

  # Stops the process, so that it does not respond but keeps its connections.
  def pause = Process.kill("STOP", @pid)

  def resume = Process.kill("CONT", @pid)

  # Kills it by its pid, and removes its directory.
  def close
    kill if @pid
    FileUtils.remove_entry(@dir)
  end

  private

  def try_ports
    TRIES.times do
      choose_ports
      return launch
    rescue Errno::EADDRINUSE
      FileUtils.rm_rf(File.join(@dir, "data"))
    end
    raise "no free ports for Kafka in #{TRIES} tries"
  end

  def choose_ports
    ports = free_ports(5)
    @port, @controller_port = ports.shift(2)
    @sasl_port = ports.shift if @sasl
    @tls_port = ports.shift if @tls
    @sasl_tls_port = ports.shift if @sasl && @tls
  end

  def free_ports(count)
    probes = Array.new(count) { TCPServer.new(host, 0) }
    probes.map { |probe| probe.addr[1] }
  ensure
    probes&.each(&:close)
  end

  def launch
    listeners = { "--controller" => @controller_port, "--sasl" => @sasl_port, "--tls" => @tls_port,
                  "--sasl-tls" => @sasl_tls_port }.compact
    settings = @settings.flat_map { |name, value| ["--set", "#{name}=#{value}"] }
    run("start", @dir, @port, "--while", Process.pid, *listeners.flatten, *settings)
    @pid = Integer(File.read(File.join(@dir, "pid")))
  end

  def run(*words)
    output, status = Open3.capture2e(SCRIPT, *words.map(&:to_s))
    return if status.success?
    raise Errno::EADDRINUSE, @port.to_s if output.include?("Address already in use")
    raise "broker #{words.first}: #{output}"
  end

  # Polls /proc, because the broker is not a child of this process.
  def wait_until_gone
    deadline = now + WAIT_S
    while running?
      raise "Kafka has not ended within #{WAIT_S} s" if now > deadline
      sleep 0.01
    end
  end

  def running?
    File.read("/proc/#{@pid}/cmdline").include?(@dir)
  rescue Errno::ENOENT, Errno::ESRCH
    false
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
