# frozen_string_literal: true

require_relative "config_case"

class MemoryConfigTest < ConfigCase
  def memory(text, given = {}) = plan("memory do\n#{text}\nend", given).memory

  def refused(line) = only_problem("memory do\n#{line}\nend").to_s

  def test_defaults
    memory = load.memory
    assert_equal [:auto, :auto, :settle, 1.0], [memory.allocator, memory.eden, memory.longlife, memory.longlife_growth]
    assert_equal [:auto, nil, :auto, 2.0], [memory.limit, memory.limit_hard, memory.limit_tree, memory.check_every_s]
    assert_equal [RUBY_VERSION >= "3.3", :between, 50.0, 1.0, false],
                 memory.to_h.values_at(:compact, :collect, :idle_full_ms, :trim_idle_s, :summary)
    assert_equal [false, 64, 0.02, 50.0, 65_536, 16_384, 128],
                 memory.to_h.values_at(:profile, :profile_every, :profile_duty, :profile_window_ms,
                                       :profile_samples_max, :profile_stacks_max, :profile_depth_max)
    assert_predicate memory, :frozen?
  end

  def test_eden_in_its_forms
    { '"64M"' => 64 << 20, "67108864" => 64 << 20, '"2x"' => 2.0, "2.5" => 2.5, '"2.5"' => 2.5, '"0.5X"' => 0.5,
      ":auto" => :auto, '"auto"' => :auto }.each { |written, value| assert_equal value, memory("eden #{written}").eden }
    ["100.0", "'0x'", "1000", "'lots'", "nil"].each do |bad|
      assert_match(/eden must be auto, bytes/, refused("eden #{bad}"))
    end
  end

  def test_longlife_in_its_forms
    { ":off" => nil, "false" => nil, ":settle" => 1.0, "0.5" => 0.5, "3" => 3.0, '"1.5"' => 1.5 }
      .each { |written, growth| assert_equal [growth], [memory("longlife #{written}").longlife_growth] }
    assert_match(/longlife must be settle, off or a number from 0.05 to 20, not 50/, refused("longlife 50"))
  end

  def test_ceilings
    memory = memory("limit '512M'\nlimit_hard '1G'\nlimit_tree :off")
    assert_equal [512 << 20, 1 << 30, :off, 2.0],
                 [memory.limit, memory.limit_hard, memory.limit_tree, memory.check_every_s]
    assert_equal :off, memory("limit false").limit
    assert_nil memory("limit_hard nil").limit_hard
    assert_match(/limit must be auto, off, or bytes from 1 MiB .* not "12"/, refused("limit '12'"))
    assert_match(/limit_hard must be none, or bytes/, refused("limit_hard :auto"))
    ["256M", "512M", "563M"].each do |hard|
      assert_match(/limit_hard \(\d+ MiB\) must be at least 1.1 times limit \(512 MiB\), or a worker would be stopped/,
                   refused("limit '512M'; limit_hard '#{hard}'"))
    end
    { "512M" => "564M", "1000M" => "1100M" }
      .each { |soft, hard| assert_match(/\A\d+\z/, memory("limit '#{soft}'; limit_hard '#{hard}'").limit_hard.to_s) }
    assert_match(/limit \(512 MiB\) is above limit_tree \(256 MiB\): one worker/,
                 refused("limit '512M'; limit_tree '256M'"))
  end

  def test_the_command_line_goes_first
    given = { allocator: "system", limit: "256M" }
    memory = memory("allocator :jemalloc\nlimit '1G'", given)
    assert_equal [:system, 256 << 20], [memory.allocator, memory.limit]
    problem = only_problem("", { allocator: "tcmalloc" })
    assert_equal 'command line: --allocator must be auto, jemalloc, mimalloc or system, not "tcmalloc"', problem.to_s
  end

  def test_options_in_the_wrong_section
    assert_match(/write memory \{ eden … \}/, only_problem("eden '64M'").message)
    assert_match(/memory needs a block/, only_problem("memory true").message)
    assert_match(/edne is not an option of memory; did you mean eden/, refused("edne 1"))
  end

  def test_a_plan_for_programs
    assert_equal [:auto, false], load.to_h.fetch(:memory).values_at(:allocator, :profile)
  end
end
