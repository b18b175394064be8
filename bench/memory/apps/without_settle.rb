# frozen_string_literal: true

# Loaded by `ruby -r` before Chaton: leaves out what is done to the heap before workers are forked, to measure what it
# is worth. Reading the heap for the next start stays.
module WithoutSettle
  def call = Chaton::Memory::HeapCache.note(@plan, Chaton::Memory::HeapReading.take, log: @log)
end

TracePoint.new(:end) do |point|
  next unless point.self.name == "Chaton::Memory::Settle"
  point.self.prepend(WithoutSettle)
  point.disable
end.enable
