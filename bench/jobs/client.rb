# frozen_string_literal: true

require "json"

# A process that enqueues, for either peer: ruby client.rb LIBRARY JOBS. It obeys lines on its input, and answers each
# with one line of JSON. Only calls that Chaton and Sidekiq have in common are measured.
class Client
  # Calls before those that are measured, so that connections and caches are there.
  WARM_UP = 500
  BATCH = 1000

  def serve
    $stdout.sync = true
    $stdin.each_line do |line|
      command, *words = line.split
      $stdout.puts JSON.generate(public_send(command, *words.map { |word| Float(word) }))
    end
  end

  # @return [Hash] of no interest but that it was done
  def noops(count) = fill(Noop, Array.new(count.to_i) { |number| [number] })
  def naps(count, seconds) = fill(Nap, Array.new(count.to_i) { [seconds] })

  # perform_async one by one.
  def one(count)
    WARM_UP.times { |number| Noop.perform_async(number) }
    measured(count.to_i) { count.to_i.times { |number| Noop.perform_async(number) } }
  end

  # perform_bulk of 1000 each.
  def bulk(count)
    lists = Array.new(BATCH) { |number| [number] }
    3.times { Noop.perform_bulk(lists) }
    calls = count.to_i / BATCH
    measured(calls * BATCH) { calls.times { Noop.perform_bulk(lists) } }
  end

  # Single jobs with pauses of any length between the two.
  def pulses(count, shortest_s, longest_s, seed)
    random = Random.new(seed.to_i)
    count.to_i.times do
      sleep random.rand(shortest_s..longest_s)
      Pulse.perform_async(now_ns)
    end
    {}
  end

  # Lets a queue give no more jobs, which only Chaton can.
  def pause = Chaton::Jobs::Queue.new("default").pause.then { {} }

  # @return [Hash] the time before the queue gave jobs again
  def resume
    queue = Chaton::Jobs::Queue.new("default")
    { at_ns: now_ns }.tap { queue.resume }
  end

  def stats
    stats = Sidekiq::Stats.new
    { processed: stats.processed, failed: stats.failed, enqueued: stats.enqueued,
      retries: stats.retry_size, dead: stats.dead_size }
  end

  private

  def fill(job, lists) = { jobs: job.perform_bulk(lists).size }

  def measured(count)
    GC.start
    cpu_s = cpu_now_s
    before_ns = now_ns
    yield
    seconds = (now_ns - before_ns) / 1e9
    { rate: count / seconds, seconds:, cpu_us: (cpu_now_s - cpu_s) * 1e6 / count }
  end

  def cpu_now_s = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

library, jobs = ARGV
require library
require "sidekiq/api" unless library == "chaton/sidekiq"
require jobs
Client.new.serve
