# frozen_string_literal: true

require "test_helper"
require "chaton/memory/environment"

class MemoryEnvironmentTest < Minitest::Test
  Environment = Chaton::Memory::Environment
  THEIRS = { "PATH" => "/bin", "LD_PRELOAD" => "libtheirs.so" }.freeze
  OURS = { "LD_PRELOAD" => "ours.so:libtheirs.so", "MALLOC_CONF" => "narenas:1" }.freeze

  def test_there_and_back
    changed = Environment.changed(THEIRS, OURS, { "line" => "jemalloc" })
    assert_equal OURS, changed.slice(*OURS.keys)
    assert_equal({ "line" => "jemalloc" }, Environment.restore(changed))
    assert_equal THEIRS, changed
  end

  def test_a_first_life
    env = THEIRS.dup
    assert_nil Environment.restore(env)
    assert_equal THEIRS, env
  end

  # A process that was started before the variables were put back is another one; they are taken out of it too.
  def test_another_process
    changed = Environment.changed(THEIRS, OURS, [], pid: Process.pid + 1)
    assert_nil Environment.restore(changed)
    assert_equal THEIRS, changed
  end

  def test_what_is_not_ours
    ["", "1", "{", "[]", "{\"pid\":#{Process.pid}}"].each do |text|
      env = { **THEIRS, Environment::VARIABLE => text }
      assert_nil Environment.restore(env), text
      assert_equal THEIRS, env
    end
  end
end
