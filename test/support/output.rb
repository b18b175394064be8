# frozen_string_literal: true

# Collects the lines that a process writes to a pipe, and waits for lines.
class Output
  # A condition was not met in time.
  class Late < StandardError; end

  # @param pipe [IO] read until its last writer has closed it
  def initialize(pipe)
    @lines = []
    @lock = Mutex.new
    @arrived = ConditionVariable.new
    @closed = false
    @reader = Thread.new { collect(pipe) }
  end

  # @return [String] the output so far
  def text
    @lock.synchronize { @lines.join }
  end

  # @param pattern [Regexp]
  # @param count [Integer] how many lines must match
  # @return [String] the last of them
  # @raise [Late] with the output so far
  def wait_line(pattern, count:, timeout_s:)
    deadline = now + timeout_s
    @lock.synchronize do
      loop do
        found = @lines.grep(pattern)
        return found[count - 1] if found.size >= count
        if @closed || now > deadline
          how = @closed ? "before the output ended" : "in #{timeout_s} s"
          raise Late, "no #{pattern.inspect} (#{count}x) #{how}; the log:\n#{@lines.join}"
        end

        @arrived.wait(@lock, [deadline - now, 0.001].max)
      end
    end
  end

  # @return [Boolean] whether all writers have closed the pipe within the time
  def ended?(timeout_s)
    !@reader.join(timeout_s).nil?
  end

  private

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def collect(pipe)
    while (line = pipe.gets)
      @lock.synchronize do
        @lines << line.scrub
        @arrived.broadcast
      end
    end
  ensure
    pipe.close
    @lock.synchronize do
      @closed = true
      @arrived.broadcast
    end
  end
end
