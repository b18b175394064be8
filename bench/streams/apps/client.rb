# frozen_string_literal: true

require "chaton"
require "json"

# A process that produces. It reads commands from standard input, one per line, and prints one line of JSON for each.
class Client
  BATCH = 10_000
  ROUND = 1000
  LIMIT_S = 120

  def serve
    $stdout.sync = true
    $stdin.each_line do |line|
      command, *words = line.split
      $stdout.puts JSON.generate(public_send(command, *words) || {})
    end
  end

  def create(topic, partitions)
    admin(do: "create", name: topic, partitions: partitions.to_i, replication: 1, settings: {})
    nil
  end

  def drop(topic)
    admin(do: "delete", name: topic)
    nil
  end

  # Fills a topic with one call for all values, and returns the measurement.
  def fill(topic, count, bytes)
    values = values(bytes)
    measured(count.to_i) do
      (count.to_i / BATCH).times.map { native.produce_values(topic, values, LIMIT_S) }.each { |receipt| done(receipt) }
    end
  end

  # Writes small records, spread evenly over the partitions.
  def spread(topic, count, partitions)
    rows = Array.new(count.to_i) { |number| [topic, "x", nil, nil, number % partitions.to_i] }
    done(native.produce_many(rows, LIMIT_S))
  end

  # Measures one call and one receipt per record.
  def loop(topic, count, bytes)
    value = values(bytes).first
    measured(count.to_i) do
      receipts = Array.new(count.to_i) { Chaton.produce(topic, value) }
      receipts.each { |receipt| done(receipt) }
    end
  end

  # Measures one call and one receipt per thousand records.
  def many(topic, count, bytes)
    values = values(bytes).first(ROUND)
    measured(count.to_i) do
      (count.to_i / ROUND).times.map { Chaton.produce_many(topic, values) }.each { |receipt| done(receipt) }
    end
  end

  # Measures single records, and waits until each is durable.
  def single(topic, count, bytes)
    value = values(bytes).first
    times_ns = Array.new(count.to_i) do
      before_ns = now_ns
      Chaton.produce!(topic, value)
      now_ns - before_ns
    end
    { times_ns: times_ns }
  end

  # Sends records at a constant rate; each value is its time of sending.
  def pulses(topic, count, rate)
    began_ns = now_ns
    count.to_i.times do |number|
      late_ns = began_ns + (number * 1_000_000_000 / rate.to_i) - now_ns
      sleep(late_ns / 1e9) if late_ns.positive?
      Chaton.produce(topic, now_ns.to_s)
    end
    native.flush(LIMIT_S)
    { seconds: (now_ns - began_ns) / 1e9 }
  end

  # @return [Hash] the number of records that a group has committed
  def committed(group) = { offset: admin(do: "committed", group: group).sum { |commit| commit["offset"] } }

  private

  def native = @native ||= Chaton::Streams.client.native
  def admin(**words) = native.admin(JSON.generate(words))&.then { |result| JSON.parse(result) }

  # Random values, as many as one call takes.
  def values(bytes)
    random = Random.new(20_261_121)
    Array.new(BATCH) { random.bytes(bytes.to_i / 2).unpack1("H*").ljust(bytes.to_i, "x") }
  end

  def done(receipt)
    receipt.wait(LIMIT_S) or raise "not written within #{LIMIT_S} s"
    nil
  end

  def measured(count)
    GC.start
    cpu_s = cpu_now_s
    before_ns = now_ns
    yield
    seconds = (now_ns - before_ns) / 1e9
    { mps: count / seconds, seconds:, cpu_s_per_m: (cpu_now_s - cpu_s) * 1e6 / count }
  end

  def cpu_now_s = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

Client.new.serve
