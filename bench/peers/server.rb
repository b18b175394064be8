# frozen_string_literal: true

require "fileutils"
require "net/http"
require "socket"
require "timeout"
require "tmpdir"
require_relative "../support/proc_tree"

module Bench
  # A server under measurement: a process of its own on a free port. Subclasses say how it is started.
  class Server
    ROOT = File.expand_path("../..", __dir__)
    BOOT_LIMIT_S = 30
    STOP_LIMIT_S = 15
    # A port that refuses has no event one could wait for.
    PROBE_EVERY_S = 0.05
    # What either server would read its settings from.
    ENVIRONMENT = { "RACK_ENV" => "production", "PORT" => nil, "WEB_CONCURRENCY" => nil, "RAILS_MAX_THREADS" => nil,
                    "RAILS_MIN_THREADS" => nil }.freeze

    attr_reader :port, :pid

    # @param threads [String, nil] "MIN:MAX"; nil: the server's own default
    # @param workers [Integer] 0: one process
    # @param core [Integer, nil] the only processor core it may use
    def initialize(threads: nil, workers: 0, core: nil)
      @threads = threads
      @workers = workers
      @core = core
    end

    # @return [String] short and unique among the servers of one case
    def label
      [name, @threads && "-t #{@threads}", @workers > 0 ? "-w #{@workers}" : nil, @core && "pinned"].compact.join(" ")
    end

    def chaton? = false
    def url(path) = "http://127.0.0.1:#{port}#{path}"
    def tree = ProcTree.new(pid)

    # @return [String] what was typed, so that another can type it
    def command_line(rackup) = [*pin, *command(rackup, "PORT")].join(" ").gsub("#{ROOT}/", "")

    # Starts and waits for the first answer. In a process group of its own, so that Ctrl-C reaches only us, who
    # then end it in order.
    # @param rackup [String] path of a config.ru
    # @param probe [String] a path that answers 200
    # @param port [Integer] 0: any free one
    # @param folder [String] where it runs
    # @return [self]
    def start(rackup, probe: "/", port: 0, folder: File.dirname(rackup))
      @port = port.zero? ? free_port : port
      @log = File.join(Dir.mktmpdir("chaton-bench"), "log")
      @pid = Process.spawn(ENVIRONMENT, *pin, *command(rackup, @port),
                           in: File::NULL, out: @log, err: @log, chdir: folder, pgroup: true)
      wait_until_it_answers(probe)
      self
    end

    # @return [String] what it wrote
    def log = File.exist?(@log.to_s) ? File.read(@log) : ""

    # Asks it to end, and makes it end if it will not.
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

    # Blocks until it has ended by itself.
    # @return [Process::Status]
    def wait
      Process.wait2(@pid).last.tap { @pid = nil }
    end

    private

    def pin = @core ? ["taskset", "-c", @core.to_s] : []

    def free_port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }

    def wait_until_it_answers(probe)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + BOOT_LIMIT_S
      until answers?(probe)
        gone = Process.wait(@pid, Process::WNOHANG)
        @pid = nil if gone
        late = Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        raise "#{label} did not start:\n#{log}" if gone || late
        sleep PROBE_EVERY_S
      end
    end

    def answers?(probe)
      Net::HTTP.get_response(URI(url(probe))).is_a?(Net::HTTPSuccess)
    rescue SystemCallError, EOFError, Net::ReadTimeout
      false
    end
  end
end
