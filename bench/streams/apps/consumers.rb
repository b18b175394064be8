# frozen_string_literal: true

require_relative "tally"

# Passes everything by: no record becomes a Ruby object.
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

# Reads every value, all of a batch at once.
class ReadingValues < Chaton::Consumer
  def consume(batch)
    Tally.during(topic, batch.size) { batch.values }
  end
end

# Waits once a batch, as for a database or another service.
class Waiting < Chaton::Consumer
  NAP_S = ENV.fetch("BENCH_NAP_MS", "0").to_f / 1000

  def consume(batch)
    Tally.during(topic, batch.size) { sleep(NAP_S) if NAP_S.positive? }
  end
end

# Tells how long ago each record was sent: its value is the clock's nanoseconds.
class Pulse < Chaton::Consumer
  def consume(batch)
    now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    Tally.during(topic, batch.size) { batch.each { |record| Tally.late(now_ns - record.raw.to_i) } }
  end
end

# Falls behind.
class Slow < Chaton::Consumer
  def consume(batch)
    Tally.during(topic, batch.size) { batch.each(&:value) && sleep(0.02) }
  end
end
