# frozen_string_literal: true

require "test_helper"
require_relative "workload_case"

# The collector with real requests, in this process.
class CollectorTest < Minitest::Test
  include WorkloadCase

  # Slots that a request of this test fills.
  OBJECTS = 20_000

  def test_collections_take_place_between_requests
    port = serve { allocate { Array.new(OBJECTS) { Object.new } } }
    # As Memory::Settle does at the start of every worker; otherwise Ruby would soon want a full collection.
    GC.start
    before = memory
    eventually { get(port) && memory[:gc_minor_total] - before[:gc_minor_total] >= 3 }
    assert_operator memory[:units], :>, before[:units]
    # Under GC.stress Ruby itself collects anywhere.
    assert_equal before[:gc_major_inside_total], memory[:gc_major_inside_total] unless STRESS
  end

  def test_a_full_collection_inside_a_request_is_counted_as_such
    port = serve { [200, {}, [GC.start.inspect]] }
    before = memory
    eventually { get(port) && memory[:gc_major_inside_total] > before[:gc_major_inside_total] }
    assert_operator memory[:gc_inside_ns], :>, before[:gc_inside_ns]
    assert_operator memory[:unit_gc_ns_max], :>, 0
  end

  def test_idle_memory_is_returned_to_the_system
    @memory = { trim_idle_s: 0.05, idle_full_ms: 5.0 }
    # More bytes than the threshold of a trim, garbage at once.
    port = serve { allocate { Array.new(200) { "x" * 100_000 } } }
    get(port)
    eventually { memory[:trims].positive? }
  end

  def test_a_line_for_each_collection
    @memory = { summary: true }
    port = serve { allocate { GC.start.inspect } }
    line = nil
    eventually { get(port) && (line = line_of("GET /")) }
    %w[kind=full by=method full_by= ms= live= freed= promoted= old= pages= malloc= rss=].each do |fact|
      assert_includes line, fact
    end
  end

  # Fetching summaries collects under stress, so none is kept meanwhile.
  def test_summaries_are_fetched_under_stress
    @memory = { summary: true }
    found = nil
    port = serve { allocate { GC.start.to_s }.tap { found = summaries_under_stress } }
    # The support thread may have been there first.
    eventually { get(port) && found&.any? }
    assert_equal "full", found.last.fetch(:kind)
    assert_equal "GET /", found.last.fetch(:unit)
  end

  def test_the_counter_of_malloc_is_lowered_within_eden
    @memory = { eden: 256 << 20 }
    port = serve { allocate { Array.new(40) { "x" * 300_000 } } }
    eventually { get(port) && memory[:malloc_forgiven_bytes].positive? }
  end

  def test_nothing_is_collected_if_collections_between_requests_are_off
    @memory = { collect: :off }
    port = serve { allocate { Array.new(OBJECTS) { Object.new } } }
    collected = GC.stat(:minor_gc_count)
    eventually { get(port) && GC.stat(:minor_gc_count) > collected }
    assert_equal 0, memory[:trims]
  end

  def test_nothing_is_collected_while_the_application_has_disabled_it
    port = serve { allocate { Array.new(OBJECTS) { Object.new } } }
    get(port)
    GC.disable
    collected = GC.count
    # Some of them would be followed by a collection.
    20.times { get(port) }
    @workload.run_command('{"do":"trim"}')
    assert_equal [collected, true], [GC.count, GC.disable]
    GC.enable
    eventually { get(port) && GC.count > collected }
  ensure
    GC.enable
    GC.start
  end

  def test_trimming_on_demand
    port = serve { [200, {}, ["ok"]] }
    get(port)
    before = memory[:gc_major_total]
    @workload.run_command('{"do":"trim"}')
    assert_operator memory[:gc_major_total], :>, before
    assert_includes @output.string, "memory returned to the system"
  end

  def test_an_unknown_command_is_only_logged
    serve { [200, {}, []] }
    @workload.run_command('{"do":"dance"}')
    assert_includes @output.string, "dance"
  end

  private

  # So many allocations would each be a full collection under stress.
  def allocate
    GC.stress = false
    [200, {}, [yield.size.to_s]]
  end

  def summaries_under_stress
    native = @workload.instance_variable_get(:@memory).instance_variable_get(:@native)
    native.lines(false)
    GC.stress = STRESS
    native.summaries.first
  ensure
    GC.stress = false
    native.lines(true)
  end

  # Of a collection that the request began itself.
  def line_of(unit)
    @output.string.lines.find { |line| line.include?("unit=\"#{unit}\"") && line.include?("by=method") }
  end

  def memory = @workload.status.fetch(:memory)

  def serve(**changes, &app)
    settings = Chaton::Config.load({ config_file: "-" }, env: {}).memory.dup
    (@memory || {}).each { |name, value| settings[name] = value }
    super(memory: settings, **changes) { |_env| app.call }
  end
end
