# frozen_string_literal: true

require "json"
require "timeout"
require "chaton/config"
require "chaton/native"

# A client of a log for tests: creates topics, writes and reads records, and reads the offsets of groups.
class StreamsLog
  WAIT_S = 30
  BATCH = 1000
  # What changes nothing.
  QUESTIONS = %w[topic committed].freeze

  attr_reader :native

  # @param broker [String]
  # @param changes [Hash] of the log's other settings, which are the defaults of their options
  # @return [String] JSON, as the native client takes it
  def self.document(broker, **changes)
    Chaton::Config.load({ config_file: "-", broker: broker }, env: {}).streams.log_document(**changes)
  end

  # @param broker [String]
  # @param settings [Hash] further settings of the log
  def initialize(broker, **settings)
    @native = Chaton::Native::StreamsClient.new(self.class.document(broker, **settings))
  end

  # @return [String] its name
  def create(name, partitions: 4, settings: {})
    admin(do: "create", name: name, partitions: partitions, replication: 1, settings: settings)
    # On a busy machine a broker of Kafka knows a topic a moment later.
    Timeout.timeout(WAIT_S) { sleep 0.02 until admin(do: "topic", name: name) }
    name
  end

  # Writes records, durably.
  #
  # @param list [Array<Array>] value, key, headers, partition, timestamp in ms; all but the value are optional
  def write(topic, list)
    list.each_slice(BATCH * 10) { |some| wait_for(native.produce_many(some.map { |item| [topic, *item] }, WAIT_S)) }
  end

  # Writes records for several keys in turn. The values of each key count from 0.
  #
  # @return [Array<String>] "key=value" of all records
  def write_sequences(topic, keys:, each:, from: 0)
    list = (from...(from + each)).flat_map { |number| Array.new(keys) { |key| [number.to_s, "key#{key}"] } }
    write(topic, list)
    list.map { |value, key| "#{key}=#{value}" }
  end

  # @return [Array<Hash>] all records of a topic, by partition and offset
  def read(topic)
    partitions(topic).flat_map { |partition| read_partition(topic, partition) }
  end

  # @return [Array<Hash>] of a topic: number, start, end
  def partitions(topic)
    found = admin(do: "topic", name: topic) or raise "there is no topic #{topic}"
    found.fetch("partitions")
  end

  # @return [Integer] number of records of a topic, from its offsets
  def size(topic) = partitions(topic).sum { |partition| partition["end"] - partition["start"] }

  # @return [Hash{Array=>Integer}] the next offset to consume by topic and partition
  def committed(group)
    admin(do: "committed", group: group).to_h { |commit| [commit.values_at("topic", "partition"), commit["offset"]] }
  end

  # @return [Boolean] whether a group has committed all records
  def done?(group, topic)
    found = committed(group)
    partitions(topic).all? { |part| part["start"] == part["end"] || found[[topic, part["number"]]].to_i >= part["end"] }
  end

  # A question is asked again for a while: a broker of a busy machine answers late, or has just lost its place.
  #
  # @return [Object] the result
  def admin(**words)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + WAIT_S
    begin
      result = native.admin(JSON.generate(words))
    rescue Chaton::StreamUnavailable
      raise if late?(deadline) || !QUESTIONS.include?(words[:do])

      sleep 0.1
      retry
    end
    result && JSON.parse(result)
  end

  def close = native.close

  private

  def wait_for(receipt)
    raise "not written within #{WAIT_S} s" unless receipt.wait(WAIT_S)
  end

  def read_partition(topic, partition)
    number, first, last = partition.values_at("number", "start", "end")
    return [] if first == last

    reader = native.reader(topic, number, "earliest")
    records = []
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + WAIT_S
    seen = first
    while seen < last
      raise "#{topic}/#{number} was not read to #{last} within #{WAIT_S} s" if late?(deadline)

      batch = reader.next(BATCH, 0.5)
      # The end of a transaction is an offset without a record, so the last offsets may have no records.
      break if batch.nil? && records.any?
      next if batch.nil?

      batch.each { |record| records << plain(record) }
      seen = batch.last_offset + 1
    end
    records
  end

  def late?(deadline) = Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

  def plain(record)
    { partition: record.partition, offset: record.offset, key: record.key, value: record.raw,
      headers: record.headers, timestamp_ms: record.timestamp_ms }
  end
end
