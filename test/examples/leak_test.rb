# frozen_string_literal: true

require_relative "example_test_case"

# test/integration/memory/trace_test.rb tests that the tracer finds the leak.
class LeakExampleTest < ExampleTestCase
  def test_it_counts_its_visits
    server = boot_example("leak", config: "workers 0")
    assert_match(/\Arow 0 of visit 1: \nrow 1 of visit 1: -\n/, get(server, "/").body)
    assert_match(/row 49 of visit 2: -{49}\z/, get(server, "/again").body)
    assert_equal 0, server.stop
  end
end
