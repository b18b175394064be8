# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require "fileutils"
require "tmpdir"

# A scratch directory with configuration files, an environment of its own, and what loading them gives.
class ConfigCase < Minitest::Test
  def setup
    @root = Dir.mktmpdir("chaton-config")
    @env = {}
  end

  def teardown
    FileUtils.remove_entry(@root)
  end

  private

  def write(path, text)
    full = File.join(@root, path)
    FileUtils.mkdir_p(File.dirname(full))
    File.write(full, text)
  end

  def load(given = {}) = Chaton::Config.load(given, env: @env, root: @root)

  # The plan of a config/chaton.rb.
  def plan(text, given = {})
    write("config/chaton.rb", text)
    load(given)
  end

  # What is wrong with it.
  def problems(text, given = {})
    plan(text, given)
    []
  rescue Chaton::Config::Invalid => e
    e.problems
  end

  def only_problem(text, given = {})
    found = problems(text, given)
    assert_equal 1, found.size, found.map(&:to_s).inspect
    found.first
  end
end
