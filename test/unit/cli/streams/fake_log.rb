# frozen_string_literal: true

require "json"

# A log in memory with what the commands use of a native client. Records become visible at once; `refuse` lets chosen
# ones fail.
class FakeLog
  class Record
    attr_reader :topic, :partition, :offset, :timestamp_ms, :key, :raw, :headers

    def initialize(*values)
      @topic, @partition, @offset, @timestamp_ms, @key, @raw, @headers = values
    end
  end

  # Of records that were produced together.
  class Receipt
    attr_reader :partition, :offset, :errors

    def initialize(placed, errors)
      @partition, @offset = placed.last
      @errors = errors
    end

    def done? = true
    def failed = @errors.size

    def wait(_timeout_s)
      raise Chaton.const_get(@errors[0][1]), @errors[0][2] unless @errors.empty?

      true
    end
  end

  # Of one partition.
  class Reader
    attr_reader :asked

    def initialize(records, position)
      @records = records
      @position = position
    end

    def next(max, _timeout_s)
      some = @records.select { |record| record.offset >= @position }.first(max)
      return if some.empty?

      @position = some.last.offset + 1
      some
    end

    def close; end
  end

  attr_reader :address, :topics, :commits, :groups
  # ->(row) { [class_name, message] or nil }
  attr_accessor :refuse

  def initialize(address = "log:///fake")
    @address = address
    @topics = {}
    @commits = Hash.new { |commits, group| commits[group] = {} }
    @groups = []
  end

  # @param records [Array<Array>] value, key, partition, headers
  def topic(name, partitions: 1, records: [], start: 0, settings: {})
    @topics[name] = { "partitions" => Array.new(partitions) { [] }, "start" => start, "settings" => settings }
    records.each { |value, key, partition, headers| append([name, value, key, headers, partition || 0, nil]) }
  end

  def commit(group, topic, offsets)
    offsets.each_with_index { |offset, partition| @commits[group][[topic, partition]] = [offset, ""] if offset }
  end

  def records(topic, partition = 0) = @topics.fetch(topic)["partitions"][partition]
  def values(topic, partition = 0) = records(topic, partition).map(&:raw)

  def produce_many(rows, _timeout_s)
    errors = []
    placed = rows.each_with_index.filter_map do |row, index|
      error = refuse&.call(row)
      errors << [index, *error] if error
      append(row) unless error
    end
    Receipt.new(placed, errors)
  end

  def reader(topic, partition, from)
    records = records(topic, partition)
    position = case from
               when "earliest" then 0
               when "latest" then end_of(topic, partition)
               when Array then records.find { |record| record.timestamp_ms >= from.last }&.offset || (1 << 60)
               else from
               end
    Reader.new(records, position)
  end

  def flush(_timeout_s) = 0

  def admin(call)
    call = JSON.parse(call, symbolize_names: true)
    JSON.generate(answer(call.delete(:do), call))
  end

  private

  def append((topic, value, key, headers, partition, timestamp_ms))
    self.topic(topic) unless @topics.key?(topic)
    partition ||= key ? key.sum % @topics[topic]["partitions"].size : 0
    offset = end_of(topic, partition)
    records(topic, partition) << Record.new(topic, partition, offset, timestamp_ms || (1_700_000_000_000 + offset), key,
                                            value, (headers || {}))
    [partition, offset]
  end

  def end_of(topic, partition) = records(topic, partition).last&.offset&.succ || @topics[topic]["start"]

  def answer(name, call)
    return @topics.key?(call[:name]) ? state(call[:name]) : nil if name == "topic"

    call.empty? ? send(:"all_#{name}") : send(name, call)
  end

  def all_topics = @topics.keys.map { |topic| state(topic) }

  def all_groups
    @groups + (@commits.keys - @groups.map { |group| group["name"] }).map { |group| idle(group) }
  end

  def create(call)
    topic(call[:name], partitions: call[:partitions] || 4, settings: call[:settings].transform_keys(&:to_s))
    nil
  end

  def grow(call)
    (call[:partitions] - @topics[call[:name]]["partitions"].size).times { @topics[call[:name]]["partitions"] << [] }
    nil
  end

  def configure(call)
    @topics[call[:name]]["settings"].merge!(call[:settings].transform_keys(&:to_s))
    nil
  end

  def set_committed(call)
    call[:commits].each do |commit|
      @commits[call[:group]][commit.values_at(:topic, :partition)] = commit.values_at(:offset, :metadata)
    end
    nil
  end

  def committed(call)
    @commits.fetch(call[:group], {}).map do |(topic, partition), (offset, metadata)|
      { topic: topic, partition: partition, offset: offset, metadata: metadata }
    end
  end

  def idle(name) = { "name" => name, "state" => "Empty", "members" => [] }

  def state(name)
    topic = @topics[name]
    partitions = topic["partitions"].each_index.map do |number|
      { number: number, start: topic["start"], end: end_of(name, number) }
    end
    { name: name, partitions: partitions, replication: 1, settings: topic["settings"] }
  end
end
