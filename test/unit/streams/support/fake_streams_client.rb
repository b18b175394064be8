# frozen_string_literal: true

# Takes the native client's place: keeps what it is given.
class FakeStreamsClient
  Receipt = Struct.new(:rows) do
    def wait(_timeout_s = nil) = !rows.flatten.include?("late")
    def failed = 0
  end

  # @return [Array<Array>] topic, value, key, headers, partition, timestamp_ms
  attr_reader :rows
  # @return [Array<Symbol>] the calls there were
  attr_reader :calls

  # @return [Array<Integer>] what each flush leaves, the last for all after it
  attr_accessor :left

  def initialize
    @left = [2]
    @rows = []
    @calls = []
  end

  def produce(*row, _timeout_s) = keep(:produce, [row])
  def produce_many(rows, _timeout_s) = keep(:produce_many, rows)
  def produce_values(topic, values, _timeout_s) = keep(:produce_values, values.map { |value| [topic, value] })
  def flush(_timeout_s) = @calls.push(:flush) && (left.size > 1 ? left.shift : left.first)
  def delivery_errors(_timeout_s) = []
  def address = "kafka://127.0.0.1:1"

  private

  def keep(call, rows)
    @calls << call
    @rows.concat(rows)
    Receipt.new(rows)
  end
end
