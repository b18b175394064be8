# frozen_string_literal: true

require "test_helper"
require "stringio"
require "chaton/telemetry/log"
require "chaton/worker/hooks"

class HooksUnitTest < Minitest::Test
  Hooks = Chaton::Worker::Hooks

  def hooks(*blocks)
    @output = StringIO.new
    Hooks.new({ boot: blocks }, log: Chaton::Telemetry::Log.new(io: @output))
  end

  def test_all_hooks_run_in_order_with_their_arguments
    seen = []
    hooks(->(index) { seen << index }, proc { seen << :none }).run(:boot, 7)
    assert_equal [7, :none], seen
  end

  def test_the_first_hook_that_raises_ends_the_run_and_is_named
    seen = []
    one = hooks(proc { raise "broken" }, proc { seen << :late })
    error = assert_raises(Hooks::Failed) { one.run(:boot) }
    assert_match(/hook boot \(.*hooks_test\.rb:\d+\) raised RuntimeError: broken/, error.message)
    assert_match(/hook boot failed/, @output.string)
    assert_empty seen
  end

  def test_all_hooks_run_at_shutdown_even_if_one_raises
    seen = []
    hooks(proc { raise "broken" }, proc { seen << :late }).run_all(:boot)
    assert_equal [:late], seen
    assert_match(/broken/, @output.string)
  end

  def test_an_event_without_hooks_does_nothing
    hooks.run(:restart)
  end
end
