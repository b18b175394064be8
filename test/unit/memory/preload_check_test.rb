# frozen_string_literal: true

require "test_helper"
require "chaton/memory/allocator"

class TrialTest < Minitest::Test
  BUNDLED = File.expand_path("../../../lib/chaton/libchaton_jemalloc.so", __dir__)

  def test_a_library_that_works
    assert_nil Chaton::Memory::PreloadCheck.failure({ "LD_PRELOAD" => BUNDLED, "RUBYOPT" => "-rnonsense" })
  end

  def test_a_library_the_linker_ignores
    assert_match(/ld.so: .*cannot be preloaded/,
                 Chaton::Memory::PreloadCheck.failure({ "LD_PRELOAD" => "/nonsense.so" }))
  end

  def test_a_ruby_that_fails
    assert_match(/ended with .*exit 1/, Chaton::Memory::PreloadCheck.failure({}, ruby: "/bin/false"))
    assert_match(/could not be tried: No such file/, Chaton::Memory::PreloadCheck.failure({}, ruby: "/nonsense"))
  end
end
