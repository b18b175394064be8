# frozen_string_literal: true

require "fileutils"
require "open3"
require "socket"
require "tmpdir"

module Bench
  # A Kafka broker on the loopback with its data on a disk. It is started by the tests' script, with more memory and the
  # server compiler of the JVM. A whole run shares one broker, because it starts slowly and has to warm up.
  class Kafka
    ROOT = File.expand_path("../..", __dir__)
    SCRIPT = File.join(ROOT, "test/support/kafka/broker")
    FOLDER = File.join(ROOT, "tmp/bench")
    JVM = "-Xms512m -Xmx1g -XX:+UseSerialGC"
    # Kafka deletes no segment during the measurement.
    SETTINGS = { "log.retention.hours" => -1, "log.segment.bytes" => 1 << 30 }.freeze

    class << self
      # @return [Kafka] running; it ends with this process
      def shared
        @shared ||= new.start.tap { |broker| at_exit { broker.stop } }
      end

      def running? = !@shared.nil?
    end

    attr_reader :pid, :port

    # @return [self]
    def start
      FileUtils.mkdir_p(FOLDER)
      @folder = Dir.mktmpdir("kafka", FOLDER)
      @port, controller = free_ports
      settings = SETTINGS.flat_map { |name, value| ["--set", "#{name}=#{value}"] }
      script("fetch")
      script("start", @folder, @port, "--controller", controller, "--while", Process.pid, *settings)
      @pid = Integer(File.read(File.join(@folder, "pid")))
      self
    end

    # @return [String] for configurations
    def url = "kafka://#{address}"
    def address = "127.0.0.1:#{@port}"

    def stop
      script("stop", @folder)
      FileUtils.rm_rf(@folder)
    end

    private

    def free_ports
      probes = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
      probes.map { |probe| probe.addr[1] }
    ensure
      probes&.each(&:close)
    end

    def script(*words)
      output, status = Open3.capture2e({ "CHATON_TEST_KAFKA_JVM" => JVM }, SCRIPT, *words.map(&:to_s))
      raise "#{SCRIPT} #{words.first} failed: #{output}" unless status.success?
    end
  end
end
