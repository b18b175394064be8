# frozen_string_literal: true

require "test_helper"
require "chaton/memory/heap_reading"

class ReadingTest < Minitest::Test
  def test_figures_of_the_heap
    GC.start
    reading = Chaton::Memory::HeapReading.take
    assert_operator reading[:live_slots], :>, reading[:old_objects]
    assert_operator reading[:heap_pages] * reading[:slots_per_page], :>, reading[:live_slots] / 4
    assert_in_delta reading[:live_slots], reading[:pools].sum(&:last), reading[:live_slots] * 0.2
    # The smallest slot, from Ruby 4.1 on and before.
    assert_includes [32, 40], reading[:pools].first.first
  end
end
