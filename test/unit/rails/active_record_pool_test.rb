# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require "chaton/rails/active_record_pool"

class ActiveRecordPoolTest < Minitest::Test
  def decide(threads, pool)
    given = threads ? { threads: threads } : {}
    plan = Chaton::Config.load({ config_file: "-", **given }, env: {}, root: "/")
    Chaton::ActiveRecordPool.threads_max(plan, pool)
  end

  def test_the_table
    # threads, pool size => maximum, level of the message
    {
      [nil, nil] => [32, nil], [nil, 5] => [5, :info], [nil, 32] => [32, nil], ["7:", 5] => [7, :info],
      ["1:5", 5] => [5, nil], ["1:3", 5] => [3, nil], ["1:16", 5] => [16, :warn], ["1:16", nil] => [16, nil]
    }.each do |(threads, pool), (max, level)|
      decided = decide(threads, pool)
      assert_equal [max, level], [decided[0], decided[2]], [threads, pool].inspect
      assert_equal level.nil?, decided[1].nil?
    end
  end

  def test_the_sentences_name_both_numbers
    assert_match(/at most 5, .*\(5\).*database.yml/, decide(nil, 5)[1])
    assert_match(/up to 16, .* has 5: /, decide("1:16", 5)[1])
  end

  # Rails 8.1 deprecates `pool`.
  def test_the_size_is_asked_for_by_the_name_of_the_running_rails
    old, new, unbounded = { pool: 5 }, { max_connections: 7 }, { max_connections: nil }
    sizes = [old, new, unbounded].map do |config|
      config = Struct.new(*config.keys).new(*config.values)
      with_active_record(config) { Chaton::ActiveRecordPool.size }
    end
    assert_equal [5, 7, nil], sizes
  end

  def test_without_active_record_there_is_no_size
    assert_nil Chaton::ActiveRecordPool.size
  end

  private

  # Another test of this process may have loaded the real one.
  def with_active_record(config)
    loaded = Object.send(:remove_const, :ActiveRecord) if Object.const_defined?(:ActiveRecord, false)
    Object.const_set(:ActiveRecord, Module.new)
    ActiveRecord.const_set(:Base, Class.new)
    ActiveRecord::Base.define_singleton_method(:connection_db_config) { config }
    yield
  ensure
    Object.send(:remove_const, :ActiveRecord)
    Object.const_set(:ActiveRecord, loaded) if loaded
  end
end
