# frozen_string_literal: true

require "test_helper"
require "chaton/memory/environment"

class MemoryEnvironmentTest < Minitest::Test
  Environment = Chaton::Memory::Environment
  THEIRS = { "PATH" => "/bin", "LD_PRELOAD" => "libtheirs.so" }.freeze
  OURS = { "LD_PRELOAD" => "ours.so:libtheirs.so", "MALLOC_CONF" => "narenas:1" }.freeze

  def test_variables_are_changed_and_restored
    changed = Environment.changed(THEIRS, OURS, { "line" => "jemalloc" })
    assert_equal OURS, changed.slice(*OURS.keys)
    assert_equal({ "line" => "jemalloc" }, Environment.restore(changed))
    assert_equal THEIRS, changed
  end

  def test_a_first_start_has_no_notes
    env = THEIRS.dup
    assert_nil Environment.restore(env)
    assert_equal THEIRS, env
  end

  # A process started before the variables were restored has another pid; they are removed there too.
  def test_another_process_gets_no_notes
    changed = Environment.changed(THEIRS, OURS, [], pid: Process.pid + 1)
    assert_nil Environment.restore(changed)
    assert_equal THEIRS, changed
  end

  def test_invalid_values_are_ignored
    ["", "1", "{", "[]", "{\"pid\":#{Process.pid}}"].each do |text|
      env = { **THEIRS, Environment::VARIABLE => text }
      assert_nil Environment.restore(env), text
      assert_equal THEIRS, env
    end
  end
end
