# frozen_string_literal: true

require "timeout"
require_relative "../support/proc_tree"
require_relative "../support/yjit"

module Bench
  # A job server under measurement: one process that runs bench/jobs/apps/jobs.rb from the queue "default".
  # Subclasses define its command, and the environment of a client.
  class JobServer
    ROOT = File.expand_path("../..", __dir__)
    JOBS = File.join(ROOT, "bench/jobs/apps/jobs.rb")
    CLIENT = File.join(ROOT, "bench/jobs/client.rb")
    STOP_LIMIT_S = 15
    # Removes the variables from which either server would read settings.
    ENVIRONMENT = { "RACK_ENV" => "production", "RAILS_ENV" => nil, "APP_ENV" => nil, "REDIS_URL" => nil,
                    "REDIS_PROVIDER" => nil, "RAILS_MAX_THREADS" => nil, "RAILS_MIN_THREADS" => nil,
                    "RUBYOPT" => RUBYOPT, "CHATON_CONFIG" => nil, "CHATON_STORE" => nil,
                    "MALLOC_ARENA_MAX" => nil }.freeze

    attr_reader :pid

    # @param core [Integer, nil] the only processor core it may use
    def initialize(core: nil)
      @core = core
    end

    def chaton? = false
    # @return [Boolean] whether its commits wait for a disk, and its queues can be paused
    def on_disk? = false
    # @return [Integer, nil] jobs in a drain, if they are not those of the case
    def jobs = nil
    # @return [Integer, nil] jobs before the measured ones, where both wait when the server starts
    def warm_up = nil
    def tree = ProcTree.new(pid)

    # What is measured runs in the block.
    def observed = yield

    # @return [String] the command, for a reader to repeat
    def command_line
      [*("RUBYOPT=#{RUBYOPT}" if RUBYOPT), *pin, *command("FOLDER", "redis://127.0.0.1:PORT/0")]
        .join(" ").gsub("#{ROOT}/", "")
    end

    # @param folder [String] for its files and its log
    # @param url [String] of Redis
    # @param env [Hash{String => String}] for the jobs
    # @return [self]
    def start(folder, url, env)
      @log = File.join(folder, "server.log")
      @pid = Process.spawn(ENVIRONMENT.merge(environment(folder, url), env), *pin, *command(folder, url),
                           in: File::NULL, out: @log, err: @log, chdir: folder, pgroup: true)
      self
    end

    # @return [String] its output
    def log = @log ? File.read(@log) : ""

    def ended?
      gone = Process.wait(@pid, Process::WNOHANG)
      @pid = nil if gone
      @pid.nil?
    end

    # Sends TERM, and kills the processes that have not ended in time.
    def stop
      return unless @pid
      Process.kill(:TERM, @pid)
      Timeout.timeout(STOP_LIMIT_S) { Process.wait(@pid) }
    rescue Timeout::Error
      tree.pids.reverse_each { |pid| Process.kill(:KILL, pid) }
      Process.wait(@pid)
    ensure
      @pid = nil
    end

    # @return [Array] environment and words of a client process that uses this server's library
    def client(folder, url)
      [ENVIRONMENT.merge(environment(folder, url)), "ruby", *library_path, CLIENT, library, JOBS]
    end

    private

    def pin = @core ? ["taskset", "-c", @core.to_s] : []
    def library_path = []
  end
end
