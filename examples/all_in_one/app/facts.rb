# frozen_string_literal: true

# Statistics of the process that serves the application.
class Facts
  def initialize
    @mutex = Mutex.new
    @requests = 0
    @started_at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def count = @mutex.synchronize { @requests += 1 }

  # @return [String] the server's name
  def server(env) = env.fetch("SERVER_SOFTWARE", "an unnamed server")

  def to_h(env)
    {
      server: server(env),
      ruby: RUBY_DESCRIPTION[/\A\S+ \S+/],
      pid: Process.pid,
      threads: Thread.list.size,
      requests: @requests,
      uptime_s: (Process.clock_gettime(Process::CLOCK_MONOTONIC) - @started_at).round(1),
      memory_mb: memory_mb,
      protocol: env["SERVER_PROTOCOL"]
    }
  end

  private

  def memory_mb
    kilobytes = File.foreach("/proc/self/status").find { |line| line.start_with?("VmRSS:") }.to_s[/\d+/].to_i
    (kilobytes / 1024.0).round(1)
  rescue SystemCallError
    nil # there is no /proc
  end
end
