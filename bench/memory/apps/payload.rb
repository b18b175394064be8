# frozen_string_literal: true

require "json"

# A job like an importer's or a mailer's: it makes, parses, changes and writes a document, and packs some bytes. All
# data comes from the seed, so that every server does the same work and Redis carries two numbers.
class Payload
  include Sidekiq::Job
  sidekiq_options retry: false

  # Seconds that a job waits while it holds its data, as for an upload.
  WAIT_S = 0.005
  WORDS = %w[invoice shipment customer address quantity discount currency warehouse].freeze
  NOTE = (WORDS * 3).join(" ").freeze
  RECORD_BYTES = 250

  @ended = 0
  @lock = Mutex.new

  # Counts the job, and writes the count to a file that the benchmark reads. The lock is needed because Ruby switches
  # threads while it writes, so that an older count could be written last.
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

  # Makes records of about 250 bytes from a single random number, so that making them is not most of the work.
  def document(random, bytes)
    start = random.rand(1_000_000)
    Array.new([bytes / RECORD_BYTES, 1].max) do |number|
      mark = start + (number * 7919)
      { "id" => number, "name" => "#{WORDS[mark % WORDS.size]} #{mark}", "note" => NOTE.byteslice(mark % 40, 110),
        "prices" => Array.new(6) { |place| (mark >> place) % 99_999 }, "open" => number.even? }
    end
  end
end
