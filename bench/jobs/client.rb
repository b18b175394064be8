# frozen_string_literal: true

require "json"

# A process that enqueues jobs, for either peer: ruby client.rb LIBRARY JOBS. It reads commands from standard input, one
# per line, and prints one line of JSON for each. Only calls that Chaton and Sidekiq have in common are measured.
class Client
  # Calls before the measured ones, so that connections are open and caches are filled.
  WARM_UP = 500
  BATCH = 1000

  def serve
    $stdout.sync = true
    $stdin.each_line do |line|
      command, *words = line.split
      $stdout.puts JSON.generate(public_send(command, *words.map { |word| Float(word) }))
    end
  end

  def noops(count) = fill(Noop, Array.new(count.to_i) { |number| [number] })
  def naps(count, seconds) = fill(Nap, Array.new(count.to_i) { [seconds] })

  # Measures perform_async.
  def one(count)
    WARM_UP.times { |number| Noop.perform_async(number) }
    measured(count.to_i) { count.to_i.times { |number| Noop.perform_async(number) } }
  end

  # Measures perform_bulk with 1,000 jobs in each call.
  def bulk(count)
    lists = Array.new(BATCH) { |number| [number] }
    3.times { Noop.perform_bulk(lists) }
    calls = count.to_i / BATCH
    measured(calls * BATCH) { calls.times { Noop.perform_bulk(lists) } }
  end

  # Enqueues single jobs, with pauses of random length between the two bounds.
  #
  # @return [Hash] the time that each call took
  def pulses(count, shortest_s, longest_s, seed)
    random = Random.new(seed.to_i)
    push_ns = Array.new(count.to_i) do
      sleep random.rand(shortest_s..longest_s)
      now_ns.then { |sent_ns| Pulse.perform_async(sent_ns) && (now_ns - sent_ns) }
    end
    { push_ns: push_ns }
  end

  # Pauses the queue, which only Chaton can.
  def pause = Chaton::Jobs::Queue.new("default").pause.then { {} }

  # @return [Hash] the time just before the queue was resumed
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

if $PROGRAM_NAME == __FILE__
  library, jobs = ARGV
  require library
  require "sidekiq/api" unless library == "chaton/sidekiq"
  require jobs
  Client.new.serve
end
