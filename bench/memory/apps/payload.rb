# frozen_string_literal: true

require "json"

# Jobs as an importer or a mailer has them: a document is made, read, changed and written again, and some bytes are
# packed. It is all computed from the seed, so that every server does the same work and Redis carries two numbers.
class Payload
  include Sidekiq::Worker
  sidekiq_options retry: false

  # Seconds for which a job waits while it holds what it made, as for an upload.
  WAIT_S = 0.005
  WORDS = %w[invoice shipment customer address quantity discount currency warehouse].freeze
  NOTE = (WORDS * 3).join(" ").freeze
  RECORD_BYTES = 250

  @ended = 0
  @lock = Mutex.new

  # Counts, and writes the count down for the benchmark to read. Writing gives other threads their turn, so that
  # without the lock an older count could be the last one.
  #
  # @return [void]
  def self.ended!
    @lock.synchronize do
      @tally ||= File.open(ENV.fetch("BENCH_TALLY"), "r+b")
      @tally.pwrite([@ended += 1].pack("Q"), 0)
    end
  end

  # @param seed [Integer]
  # @param bytes [Integer] size of the payload
  def perform(seed, bytes)
    random = Random.new(seed)
    text = JSON.generate(document(random, bytes / 2))
    blob = random.bytes(bytes / 2)
    sleep WAIT_S
    records = JSON.parse(text)
    records.each { |record| record["total"] = record["prices"].sum }
    packed = [blob].pack("m0")
    raise "a payload changed on its way" unless packed.unpack1("m0").bytesize == blob.bytesize
    JSON.generate("records" => records.reject { |record| record["total"] < 10 }, "blob" => packed)
    Payload.ended!
  end

  private

  # Records of about 250 bytes each; one random number for all of them, so that making them is not the work.
  def document(random, bytes)
    start = random.rand(1_000_000)
    Array.new([bytes / RECORD_BYTES, 1].max) do |number|
      mark = start + (number * 7919)
      { "id" => number, "name" => "#{WORDS[mark % WORDS.size]} #{mark}", "note" => NOTE.byteslice(mark % 40, 110),
        "prices" => Array.new(6) { |place| (mark >> place) % 99_999 }, "open" => number.even? }
    end
  end
end
