# frozen_string_literal: true

# Debian's Sidekiq, running jobs.
class SidekiqServer
  WAIT_S = 30

  attr_reader :pid

  # @param dir [String] its working directory
  # @param url [String] of Redis
  # @param file [String] the job classes
  def initialize(dir, url, file, concurrency: 4)
    @dir = dir
    @url = url
    @file = file
    @concurrency = concurrency
    @log = File.join(dir, "sidekiq.log")
  end

  # @return [self] once it has booted
  def start
    words = ["-r", "./#{@file}", "-c", @concurrency.to_s, "-q", "default"]
    @pid = Process.spawn({ "REDIS_URL" => @url }, "sidekiq", *words, chdir: @dir, out: @log, err: %i[child out])
    @waiter = Process.detach(@pid)
    wait_until_ready
    self
  end

  def stop
    Process.kill("TERM", @pid)
    raise "sidekiq has not ended:\n#{File.read(@log)}" unless @waiter.join(WAIT_S)
  end

  # Kills it by its pid.
  def close
    Process.kill("KILL", @pid) if @waiter.alive?
    @waiter.join
  rescue Errno::ESRCH
    nil
  end

  private

  def wait_until_ready
    deadline = now + WAIT_S
    until File.read(@log).match?(/Starting processing|Booted|Running in/)
      raise "sidekiq does not start:\n#{File.read(@log)}" if !@waiter.alive? || now > deadline

      sleep 0.01
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
