# frozen_string_literal: true

require "open3"
require_relative "console"
require_relative "recorder"
require_relative "redis_server"
require_relative "server"

# The real `exe/chaton` running jobs: configuration and job classes in a scratch directory.
class JobsServer < Server
  RECORDER = File.expand_path("recorder.rb", __dir__)
  # Where a SQLite store is, from the server's directory.
  FILE = "storage/jobs.db"
  # Deaths in a row are answered at once.
  QUICK = "restart_delay_s 0.05\nrestart_delay_max_s 0.05"

  # @param store [String] its address
  # @param jobs [String] Ruby: the job classes
  # @param section [String] more of `jobs { }`
  # @param config [String] more of the configuration
  # @param options [Hash] as of Server
  def initialize(store:, jobs: "", workers: "jobs: 1", threads: "1..8", section: "", config: "", rackup: nil, **options)
    super(rackup: rackup, config: <<~RUBY, **options)
      workers #{workers}
      threads #{threads}
      #{config}
      jobs do
        store #{store.dump}
        load "app/jobs"
        #{section}
      end
    RUBY
    write("app/jobs/jobs.rb", "require \"chaton/job\"\nrequire #{RECORDER.dump}\n#{jobs}")
  end

  # Waits until every worker is ready.
  #
  # @return [self]
  def ready
    eventually("ready", timeout_s: WAIT_S * 2) do
      raise Late, "the server has ended; the log:\n#{log}" unless @waiter.alive?

      running?
    end
    wait_line(/ INFO  ready  /)
    self
  end

  # @return [Recorder] what the jobs wrote
  def record = @record ||= Recorder.new(dir)

  # A command of `chaton jobs`, in a process of its own.
  #
  # @return [(String, String, Integer)] output, errors, exit status
  def jobs_command(*words)
    out, err, status = Open3.capture3(@env, RbConfig.ruby, "-I", LIB, EXE, "jobs", *words, chdir: dir)
    [out, err, status.exitstatus]
  end

  # Ends everything at once, the supervisor first, so that it repairs nothing.
  def kill_all
    pids = workers
    signal("STOP")
    pids.each { |pid| signal("KILL", pid) }
    signal("KILL")
    wait_exit
    wait_all_gone
  end

  private

  def running?
    now = status
    return now["state"] == "running" unless now.key?("workers")

    now["state"] == "running" && now["workers"].any? && now["workers"].all? { |worker| worker["ready"] }
  rescue Chaton::Error, SystemCallError, JSON::ParserError
    false
  end
end
