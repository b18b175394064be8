# frozen_string_literal: true

require "json"

# Makes, parses, changes and writes a document of 10 KB to 2 MB with each request, beside as many random bytes, and
# sends the result, like an export or an importer. All data comes from the number of the request, so that every server
# does the same work.
class Payloads
  SEED = 20_261_123
  BYTES = (10_000..2_000_000)
  # Seconds that a request waits while it holds its data, as for a database.
  WAIT_S = 0.005
  WORDS = %w[invoice shipment customer address quantity discount currency warehouse].freeze
  NOTE = (WORDS * 3).join(" ").freeze
  RECORD_BYTES = 250

  def initialize
    @sizes = Random.new(SEED)
    @lock = Mutex.new
  end

  def call(_env)
    random, bytes = @lock.synchronize { [Random.new(@sizes.rand(1 << 30)), @sizes.rand(BYTES)] }
    text = JSON.generate(document(random, bytes))
    blob = random.bytes(bytes)
    sleep WAIT_S
    records = JSON.parse(text)
    records.each { |record| record["total"] = record["prices"].sum }
    result = { "records" => records.reject { |record| record["total"] < 10 }, "blob" => [blob].pack("m0") }
    [200, { "content-type" => "application/json" }, [JSON.generate(result)]]
  end

  private

  def document(random, bytes)
    start = random.rand(1_000_000)
    Array.new([bytes / RECORD_BYTES, 1].max) do |number|
      mark = start + (number * 7919)
      { "id" => number, "name" => "#{WORDS[mark % WORDS.size]} #{mark}", "note" => NOTE.byteslice(mark % 40, 110),
        "prices" => Array.new(6) { |place| (mark >> place) % 99_999 }, "open" => number.even? }
    end
  end
end

run Payloads.new
