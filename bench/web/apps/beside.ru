# frozen_string_literal: true

# Four jobs that compute, one after another, in the process that answers requests. Chaton runs them as jobs, Puma in
# four threads of the application's own.
class Burn
  include Chaton::Job if defined?(Chaton::Job)

  JOBS = 4
  JOB_S = 0.1

  @lock = Mutex.new
  @done = 0

  class << self
    attr_reader :done

    def count = @lock.synchronize { @done += 1 }

    def start_all
      return if @started
      @started = true
      JOBS.times { respond_to?(:perform_async) ? perform_async : Thread.new { loop { new.burn } } }
    end
  end

  def perform
    burn
    self.class.perform_async
  end

  def burn
    until_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + JOB_S
    nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < until_s
    self.class.count
  end
end

run(lambda do |env|
  Burn.start_all if env["PATH_INFO"] == "/start"
  [200, { "content-type" => "text/plain" }, [env["PATH_INFO"] == "/" ? "hello" : Burn.done.to_s]]
end)
