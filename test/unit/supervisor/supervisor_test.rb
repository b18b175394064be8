# frozen_string_literal: true

require "test_helper"
require "open3"
require "rbconfig"

# What the process that lives as long as the server has loaded.
class SupervisorTest < Minitest::Test
  # With preload these are needed in the preloader and in workers only.
  OF_WORKERS = %w[worker workload pool web/handler web/request memory/collector supervisor/preloader_process].freeze

  def test_it_does_not_load_what_only_workers_need
    code = "require 'chaton/supervisor'; puts $LOADED_FEATURES"
    loaded, status = Open3.capture2(RbConfig.ruby, "-I#{File.expand_path("../../../lib", __dir__)}", "-e", code)
    assert_predicate status, :success?
    assert_match(%r{/chaton/supervisor/controller\.rb$}, loaded)
    assert_empty(OF_WORKERS.select { |name| loaded.match?(%r{/chaton/#{name}\.rb$}) })
  end
end
