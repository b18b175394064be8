# frozen_string_literal: true

# One part of the test run: a command in a process of its own, its output shown as it comes and its
# closing lines counted.
class Part
  # Closing lines of cargo test and of minitest.
  CARGO = /^test result: \w+\. (?<passed>\d+) passed; (?<failed>\d+) failed/
  MINITEST = /^(?<runs>\d+) runs, \d+ assertions, (?<failures>\d+) failures, (?<errors>\d+) errors/

  attr_reader :name, :passed, :failed, :seconds
  # @return [IO] where it was shown
  attr_reader :output

  # @param name [String] shown in the summary
  # @param command [Array<String>]
  # @param env [Hash{String => String}]
  # @param time_limit_s [Integer] after which the part is ended and counted as failed
  def initialize(name, command, env: {}, time_limit_s: 900)
    @name = name
    @command = command
    @env = env
    @time_limit_s = time_limit_s
    @passed = @failed = 0
  end

  # @param output [IO] where it is shown
  # @return [self]
  def run(output = $stdout)
    @output = output
    output.puts "== #{name}"
    started = now
    ok = follow
    @seconds = now - started
    # A process that died without saying how many tests failed has failed once at least.
    @failed = 1 if !ok && @failed.zero?
    self
  end

  # Adds up one line of output.
  def count(line)
    if (found = CARGO.match(line))
      @passed += found[:passed].to_i
      @failed += found[:failed].to_i
    elsif (found = MINITEST.match(line))
      failed = found[:failures].to_i + found[:errors].to_i
      @passed += found[:runs].to_i - failed
      @failed += failed
    end
  end

  def to_s = format("%-12s %5d passed %4d failed %7.1f s", name, passed, failed, seconds)

  private

  # A group of its own, so that a part past its limit is ended with everything it started.
  def follow
    lines, input = IO.pipe
    pid = Process.spawn(@env, *@command, in: File::NULL, out: input, err: input, pgroup: true)
    input.close
    limit = Thread.new { end_late(pid) }
    ended = Thread.new { Process.wait2(pid).last.tap { end_rest(pid) } }
    lines.each_line do |line|
      output.puts line
      count(line.scrub)
    end
    tell(ended.value)
  ensure
    limit&.kill
    lines&.close
  end

  # What ended it, where its own words may be missing.
  def tell(status)
    output.puts "#{name}: #{status}" unless status.success?
    status.success?
  end

  # Processes that it left behind would hold its output open.
  def end_rest(pid)
    Process.kill(:KILL, -pid)
  rescue Errno::ESRCH
    # None are left.
  end

  def end_late(pid)
    sleep @time_limit_s
    output.puts "#{name} took longer than #{@time_limit_s} s and was ended"
    Process.kill(:KILL, -pid)
  rescue Errno::ESRCH
    # It ended by itself in this very moment.
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
