# frozen_string_literal: true

# Loaded by `ruby -r` before Chaton: skips the heap preparation before the forks, so that its effect can be measured.
# The heap is still read for the next start.
module WithoutSettle
  def call = Chaton::Memory::HeapCache.note(@plan, Chaton::Memory::HeapReading.take, log: @log)
end

TracePoint.new(:end) do |point|
  next unless point.self.name == "Chaton::Memory::Settle"
  point.self.prepend(WithoutSettle)
  point.disable
end.enable
