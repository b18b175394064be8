# frozen_string_literal: true

require "json"

# Runs test processes side by side and reports what each part and the slowest tests took.
class TestRun
  SLOWEST = 20

  # @param slots [Integer] processes at a time; most tests wait, so that may be more than there are processors
  # @param times_path [String] remembers how long each process took: the longest start first the next time
  # @param result_path [String, nil] where the numbers of each part are written, as JSON
  # @param seconds [Numeric] after which no process is started; the report names those that are left out
  # @param again_max [Integer] so many failed processes at most are run a second time, alone, and the second run counts;
  #   if more have failed, none is
  def initialize(slots:, times_path:, result_path: nil, seconds: Float::INFINITY, again_max: 0, out: $stdout)
    @slots = slots
    @times_path = times_path
    @result_path = result_path
    @seconds = seconds
    @again_max = again_max
    @out = out
    @lock = Mutex.new
    @changed = ConditionVariable.new
    @done = []
    @left_out = []
    @unstable = []
  end

  # @param processes [Array<TestProcess>]
  # @return [Boolean] whether something passed and nothing failed
  def call(processes)
    @started = now
    alone, others = processes.partition(&:alone?)
    work_off(others, @slots)
    work_off(alone, 1)
    run_failed_again
    remember
    write_result
    report
    failed.zero? && passed.positive?
  end

  private

  def run_failed_again
    first = @done.reject { |process| process.failed.zero? }
    return if first.empty? || first.size > @again_max
    @out.puts "", "run again, alone: #{first.map(&:label).join(", ")}"
    again = first.to_h { |process| [process, process.again] }
    work_off(again.values, 1)
    first.each { |process| @done.delete(process) unless @left_out.delete(again[process]) }
    @unstable = (first - @done).select { |process| again[process].failed.zero? }
  end

  def work_off(processes, slots)
    @waiting = []
    @open = 0
    add(processes)
    Array.new(slots) { Thread.new { work } }.each(&:join)
  end

  def work
    while (process = take)
      late = now - @started > @seconds
      process.run unless late
      @lock.synchronize { late ? leave_out(process) : finish(process) }
    end
  end

  # @return [TestProcess, nil] nil when none will follow
  def take
    @lock.synchronize do
      @changed.wait(@lock) while @waiting.empty? && @open.positive?
      @waiting.shift
    end
  end

  def leave_out(process)
    @left_out << process
    one_less
  end

  def finish(process)
    @done << process
    @out.puts process.output.lines.grep_v(/\A\{/).grep_v(TestProcess::TIMED), "" unless process.failed.zero?
    @out.puts process
    add(process.followers)
    one_less
  end

  def one_less
    @open -= 1
    @changed.broadcast
  end

  # The longest first, so that none runs alone at the end; before them what others follow, and what nobody knows.
  # What follows goes before what has waited: the compiler was the first, and its programs wait more than they compute.
  def add(processes)
    @open += processes.size
    @waiting = [*processes, *@waiting].sort_by.with_index do |process, index|
      [process.leads? ? 0 : 1, -known_times.fetch(process.label, Float::INFINITY), index]
    end
    @changed.broadcast
  end

  def known_times = @known_times ||= File.exist?(@times_path) ? JSON.parse(File.read(@times_path)) : {}

  def remember
    times = known_times.merge(@done.to_h { |one| [one.label, one.seconds.round(1)] })
    File.write(@times_path, JSON.pretty_generate(times))
  end

  def report
    @out.puts "", "the slowest tests:"
    slowest.each { |name, seconds| @out.puts format("%8.1f s  %s", seconds, name) }
    @out.puts ""
    @out.puts "part              passed failed seconds  processor  processes"
    @done.group_by(&:part).each { |part, processes| @out.puts line(part, processes) }
    @out.puts line("all", @done), format("%.1f s from start to end", now - @started), ""
    @out.puts "left out, because the time was over: #{@left_out.map(&:label).join(", ")}" unless @left_out.empty?
    unless @unstable.empty?
      @out.puts "failed, and passed when it ran again alone: #{@unstable.map(&:label).join(", ")}"
    end
    @out.puts "#{skipped} skipped, because a gem is missing" if skipped.positive?
    @out.puts "#{passed} passed, #{failed} failed"
  end

  def line(part, processes)
    format("%-17s %6d %6d %7.1f %10.1f %10d", part, processes.sum(&:passed), processes.sum(&:failed),
           processes.sum(&:seconds), processes.sum(&:cpu_s), processes.size)
  end

  # A part is cut if a process of it did not run.
  def write_result
    return unless @result_path
    parts = @done.group_by(&:part).transform_values do |processes|
      %i[passed failed skipped seconds].to_h { |figure| [figure, processes.sum(&figure).round] }
    end
    File.write(@result_path, JSON.pretty_generate(parts: parts, cut: @left_out.map(&:part).uniq))
  end

  # A Rust test program gives no time for each of its tests, so it stands here as a whole.
  def slowest
    all = @done.flat_map { |one| one.tests.empty? ? [[one.label, one.seconds]] : one.tests.map { |name, s| [name, s] } }
    all.max_by(SLOWEST, &:last)
  end

  def passed = @done.sum(&:passed)
  def failed = @done.sum(&:failed)
  def skipped = @done.sum(&:skipped)
  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
