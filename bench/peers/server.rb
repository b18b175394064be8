# frozen_string_literal: true

require "fileutils"
require "net/http"
require "socket"
require "timeout"
require "tmpdir"
require_relative "../support/certificate"
require_relative "../support/proc_tree"
require_relative "../support/yjit"

module Bench
  # A web server under measurement: a process on a free port. Subclasses define its command.
  class Server
    ROOT = File.expand_path("../..", __dir__)
    # A large application on a busy machine takes its time.
    BOOT_LIMIT_S = 90
    STOP_LIMIT_S = 15
    # There is no event to wait for while a port refuses connections.
    PROBE_EVERY_S = 0.05
    # Removes the variables from which either server would read settings.
    ENVIRONMENT = { "RACK_ENV" => "production", "PORT" => nil, "WEB_CONCURRENCY" => nil, "RAILS_MAX_THREADS" => nil,
                    "RAILS_MIN_THREADS" => nil, "RUBYOPT" => RUBYOPT }.freeze

    attr_reader :port, :pid

    # @param threads [String, nil] "MIN:MAX"; nil: the server's own default
    # @param workers [Integer] 0: one process
    # @param core [Integer, nil] the only processor core it may use
    # @param tls [Boolean] whether it speaks HTTPS
    # @param http2 [Boolean] whether its clients speak HTTP/2
    def initialize(threads: nil, workers: 0, core: nil, tls: false, http2: false)
      @threads = threads
      @workers = workers
      @core = core
      @tls = tls
      @http2 = http2
    end

    # @return [String] short and unique among the servers of one case
    def label
      [name, @threads && "-t #{@threads}", @workers > 0 ? "-w #{@workers}" : nil, @core && "pinned",
       @tls ? "TLS" : nil, @http2 ? "HTTP/2" : nil].compact.join(" ")
    end

    def chaton? = false
    def http2? = @http2
    # @return [Hash{String => String}] of each request under load
    def request_headers = {}
    def url(path) = "#{@tls ? "https" : "http"}://127.0.0.1:#{port}#{path}"
    def tree = ProcTree.new(pid)

    # @return [String] the command, for a reader to repeat
    def command_line(rackup)
      [*("RUBYOPT=#{RUBYOPT}" if RUBYOPT), *pin, *command(rackup, "PORT")].join(" ").gsub("#{ROOT}/", "")
    end

    # Starts the server and waits for its first response. The server has its own process group, so that Ctrl-C reaches
    # only this process, which then stops the server.
    # @param rackup [String] path of a config.ru
    # @param probe [String] a path with status 200
    # @param port [Integer] 0 for any free port
    # @param folder [String] its working directory
    # @return [self]
    def start(rackup, probe: "/", port: 0, folder: File.dirname(rackup))
      @port = port.zero? ? free_port : port
      @log = File.join(Dir.mktmpdir("chaton-bench"), "log")
      @pid = Process.spawn(environment, *pin, *command(rackup, @port),
                           in: File::NULL, out: @log, err: @log, chdir: folder, pgroup: true)
      wait_until_ready(probe)
      self
    end

    # @return [String] its output
    def log = File.exist?(@log.to_s) ? File.read(@log) : ""

    # Sends TERM, and kills the processes that have not ended in time.
    def stop
      return unless @pid
      Process.kill(:TERM, @pid)
      Timeout.timeout(STOP_LIMIT_S) { wait }
    rescue Timeout::Error
      tree.pids.reverse_each { |pid| Process.kill(:KILL, pid) }
      wait
    ensure
      FileUtils.rm_rf(File.dirname(@log)) if @log
    end

    # Blocks until the process has ended.
    # @return [Process::Status]
    def wait
      Process.wait2(@pid).last.tap { @pid = nil }
    end

    private

    def environment = ENVIRONMENT
    def pin = @core ? ["taskset", "-c", @core.to_s] : []

    # @return [String] a bind
    def address(port, encrypted)
      return "tcp://127.0.0.1:#{port}" unless @tls
      cert, key = Certificate.pair
      "#{encrypted}://127.0.0.1:#{port}?cert=#{cert}&key=#{key}"
    end

    def free_port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }

    def wait_until_ready(probe)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + BOOT_LIMIT_S
      until responds?(probe)
        gone = Process.wait(@pid, Process::WNOHANG)
        @pid = nil if gone
        late = Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        raise "#{label} did not start:\n#{log}" if gone || late
        sleep PROBE_EVERY_S
      end
    end

    def responds?(probe)
      uri = URI(url(probe))
      Net::HTTP.start(uri.host, uri.port, use_ssl: @tls, verify_mode: OpenSSL::SSL::VERIFY_NONE) do |http|
        http.get(uri.request_uri).is_a?(Net::HTTPSuccess)
      end
    rescue SystemCallError, EOFError, Net::ReadTimeout, OpenSSL::SSL::SSLError
      false
    end
  end
end
