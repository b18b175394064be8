# frozen_string_literal: true

require "test_helper"
require_relative "../../../ext/chaton/toolchain"

class ToolchainTest < Minitest::Test
  # These two make rb-sys read the headers again when another Ruby builds into the same folder.
  def test_cargo_compiles_for_the_ruby_that_runs_it
    assert_equal [RbConfig.ruby, RUBY_VERSION], Toolchain.env.values_at("RUBY", "RUBY_VERSION")
  end
end
