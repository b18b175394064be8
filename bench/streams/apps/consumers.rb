# frozen_string_literal: true

require_relative "tally"

# Touches no value, so that no record becomes a Ruby object.
class Untouched < Chaton::Consumer
  def consume(batch)
    Tally.during(topic, batch.size) { nil }
  end
end

# Reads every value, record by record.
class Reading < Chaton::Consumer
  def consume(batch)
    Tally.during(topic, batch.size) { batch.each(&:value) }
  end
end

# Reads all values of a batch at once.
class ReadingValues < Chaton::Consumer
  def consume(batch)
    Tally.during(topic, batch.size) { batch.values }
  end
end

# Waits once per batch, like a consumer that calls a database or another service.
class Waiting < Chaton::Consumer
  NAP_S = ENV.fetch("BENCH_NAP_MS", "0").to_f / 1000

  def consume(batch)
    Tally.during(topic, batch.size) { sleep(NAP_S) if NAP_S.positive? }
  end
end

# Reports the age of each record, whose value is its time of sending in nanoseconds.
class Pulse < Chaton::Consumer
  def consume(batch)
    now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    Tally.during(topic, batch.size) { batch.each { |record| Tally.late(now_ns - record.raw.to_i) } }
  end
end

# Is slower than the producer.
class Slow < Chaton::Consumer
  def consume(batch)
    Tally.during(topic, batch.size) { batch.each(&:value) && sleep(0.02) }
  end
end
