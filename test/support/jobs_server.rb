# frozen_string_literal: true

require_relative "recorder"
require_relative "redis_server"
require_relative "role_server"

# The real `exe/chaton` running jobs: configuration and job classes in a scratch directory.
class JobsServer < RoleServer
  RECORDER = File.expand_path("recorder.rb", __dir__)
  # Path of a SQLite store, relative to the server's directory.
  FILE = "storage/jobs.db"

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

  # @return [self]
  def ready
    super
    wait_line(/ INFO  ready  /)
    self
  end

  # @return [Recorder] the jobs' entries
  def record = @record ||= Recorder.new(dir)

  # Stops a process with SIGSTOP while it does not write to the file of jobs: a stopped process that holds the lock
  # keeps everyone else from writing. The first word of the lock is the thread that holds it (POSIX mutex in a file,
  # 128 bytes from its start: crates/core/src/file_lock.rs; glibc's pthread_mutex_t).
  def stop_between_writes(pid, file)
    eventually("it is stopped without the lock") do
      signal("STOP", pid)
      eventually("no thread of it runs") { thread_states(pid).uniq == ["T"] }
      next true if (File.binread("#{file}-lock", 4, 128).unpack1("L") & 0x3fffffff).zero?

      signal("CONT", pid)
      false
    end
  end

  # @return [String] what `chaton check` prints
  def check = run_command("check").first

  # Runs a command of `chaton jobs`.
  #
  # @return [(String, String, Integer)] output, errors, exit status
  def jobs_command(*words) = run_command("jobs", *words)
end
