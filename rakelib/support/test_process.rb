# frozen_string_literal: true

# A process that runs tests: minitest on some files, or one test program that cargo built. Its output is collected, and
# the closing lines and the time of each test are read from it.
class TestProcess
  # Closing lines of a Rust test program and of minitest.
  CARGO = /^test result: \w+\. (?<passed>\d+) passed; (?<failed>\d+) failed/
  MINITEST = /^(?<runs>\d+) runs, \d+ assertions, (?<failures>\d+) failures, (?<errors>\d+) errors(?:, (?<skips>\d+))?/
  # A line of minitest's --verbose.
  TIMED = /^(?<name>\S+#\S.*?) = (?<seconds>\d+\.\d+) s = [.FES]$/
  # The shell measures the processor time of the command and of everything it waited for.
  MEASURED = ["bash", "-c", 'TIMEFORMAT="processor time %U %S"; time "$@"', "measured"].freeze
  CPU = /^processor time (?<user>\d+\.\d+) (?<system>\d+\.\d+)$/

  attr_reader :part, :label, :passed, :failed, :skipped, :seconds, :cpu_s, :output
  # @return [Hash{String => Float}] seconds by name of test
  attr_reader :tests

  # @param part [String] the part of the run that it belongs to
  # @param label [String] names it in the report
  # @param command [Array<String>]
  # @param dir [String] where it runs
  # @param nice [Integer] above zero for what computes all the time, so that tests that wait are not held up by it
  # @param alone [Boolean] whether its tests need the processors for themselves
  # @param time_limit_s [Numeric] after which it is ended and counted as failed
  # @yieldparam output [String] of a process that succeeded
  # @yieldreturn [Array<TestProcess>] to be run after it
  def initialize(part, label, command, env: {}, dir: Dir.pwd, nice: 0, alone: false,
                 time_limit_s: 900, &followers)
    @part = part
    @label = label
    @command = [*MEASURED, *(["nice", "-n", nice.to_s] if nice.positive?), *command]
    @env = env
    @dir = dir
    @alone = alone
    @time_limit_s = time_limit_s
    @followers = followers
    forget
  end

  # @return [TestProcess] the same, not yet run
  def again = dup.tap(&:forget)

  # @return [self]
  def run
    started = now
    ok = follow
    @seconds = now - started
    # A process that died before its closing line has failed once at least.
    @failed = 1 if !ok && @failed.zero?
    self
  end

  def alone? = @alone

  # @return [Boolean] whether others wait for its end
  def leads? = !@followers.nil?

  # @return [Array<TestProcess>] to be run now that this one has ended
  def followers = @followers && failed.zero? ? @followers.call(output) : []

  # Forgets what a run has shown.
  def forget
    @passed = @failed = @skipped = 0
    @cpu_s = 0.0
    @tests = {}
    @output = +""
  end

  def to_s
    result = failed.zero? ? "ok" : "FAILED"
    skips = ", #{skipped} skipped" unless skipped.zero?
    format("%-6s %s: %s (%d passed%s, %.1f s, %.1f s of processor time)", result, part, label, passed, skips, seconds,
           cpu_s)
  end

  private

  # The process leads a group of its own, so that one past its limit is ended with everything it started.
  def follow
    lines, input = IO.pipe
    pid = Process.spawn(@env, *@command, in: File::NULL, out: input, err: input, pgroup: true, chdir: @dir)
    input.close
    limit = Thread.new { end_late(pid) }
    ended = Thread.new { Process.wait2(pid).last.tap { end_group(pid) } }
    lines.each_line { |line| read(line.scrub) }
    status = ended.value
    @output << "#{label}: #{status}\n" unless status.success?
    status.success?
  ensure
    limit&.kill
    # When the run is interrupted.
    end_group(pid) if pid && !status
    lines&.close
  end

  def read(line)
    if (found = CPU.match(line))
      @cpu_s = found[:user].to_f + found[:system].to_f
      return
    end
    @output << line
    if (found = TIMED.match(line))
      @tests[found[:name]] = found[:seconds].to_f
    elsif (found = CARGO.match(line))
      @passed += found[:passed].to_i
      @failed += found[:failed].to_i
    elsif (found = MINITEST.match(line))
      count(found[:runs].to_i, found[:failures].to_i + found[:errors].to_i, found[:skips].to_i)
    end
  end

  def count(runs, failed, skipped)
    @passed += runs - failed - skipped
    @failed += failed
    @skipped += skipped
  end

  # Processes left behind would hold the output open.
  def end_group(pid)
    Process.kill(:KILL, -pid)
  rescue Errno::ESRCH
    # None are left.
  end

  def end_late(pid)
    sleep @time_limit_s
    @output << "#{label} took longer than #{@time_limit_s} s and was ended\n"
    end_group(pid)
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
