# frozen_string_literal: true

require "socket"

# Runs the jobs of Rails' integration tests as `chaton --jobs` does, beside the tests' process, which enqueues.
module ChatonJobsManager
  QUEUE = "integration_tests"

  def setup
    ActiveJob::Base.queue_adapter = :chaton
  end

  def clear_jobs
    Chaton::Jobs::Queue.new(QUEUE).clear
    Chaton::Jobs::ScheduledSet.new.clear
  end

  # The log is a pipe: what waits for a line reads it, and so does its end, which a killed worker closes.
  def start_workers
    File.write(Rails.root.join("config/chaton.rb"), "threads 1..1\njobs { queues #{QUEUE.dump} }\n")
    @log, input = IO.pipe
    command = [RbConfig.ruby, Gem.bin_path("chaton", "chaton"), "--jobs"]
    @pid = Process.spawn(*command, chdir: Rails.root.to_s, in: File::NULL, out: input, err: input)
    input.close
    seen = +""
    seen << @log.readline until seen.match?(/ ready  /)
    Thread.new(@log) { |log| IO.copy_stream(log, Rails.root.join("log/chaton.log").to_s) }
  rescue EOFError
    raise "chaton did not start:\n#{seen}"
  end

  def stop_workers
    return unless @pid

    Process.kill(:TERM, @pid)
    Process.wait(@pid)
    @pid = nil
  end
end
