# frozen_string_literal: true

require "test_helper"
require "chaton"
require "chaton/config"
require "tmpdir"

# Where Chaton.transaction is refused; test/integration/transaction_test.rb is about what it writes.
class TransactionRefusalsTest < Minitest::Test
  def check(store, broker)
    plan = Chaton::Config.load({ config_file: "-", store: store, broker: broker }, env: {}, root: Dir.tmpdir)
    Chaton::Transaction.send(:check_file, plan.jobs, plan.streams)
  end

  def test_jobs_and_records_are_in_one_file
    root = Dir.tmpdir
    check("sqlite://a.db", "sqlite://#{root}/a.db")
    check("sqlite://a/log.db", "log://a")
    { %w[sqlite://a.db sqlite://b.db] => %r{write streams \{ broker "sqlite://#{root}/a.db" \}},
      %w[sqlite://a.db kafka://h:9] => %r{are in kafka://h:9: write streams \{ broker "sqlite://#{root}/a.db" \}},
      %w[redis://h:6379 sqlite://a.db] =>
        /jobs are in redis:.*write jobs \{ store "sqlite:.*\} and streams \{ broker "sqlite:/ }.each do |pair, expected|
      assert_match expected, assert_raises(Chaton::ConfigError) { check(*pair) }.message
    end
  end

  def test_it_belongs_to_a_job_or_a_consumer
    assert_match(/is for jobs and consumers/, assert_raises(Chaton::Error) { Chaton.transaction { 1 } }.message)
    assert_match(/needs a block/, assert_raises(ArgumentError) { Chaton.transaction }.message)
  end

  def test_an_iteration_has_none
    job = Class.new do
      include Chaton::IterableJob

      def build_enumerator(cursor:) = array_enumerator([1], cursor: cursor)
      def each_iteration(_item) = Chaton.transaction { flunk }
    end
    error = assert_raises(Chaton::Error) { job.new.perform }
    assert_match(/cannot be used in each_iteration/, error.message)
    assert_match(/is for jobs and consumers/, assert_raises(Chaton::Error) { Chaton.transaction { 1 } }.message)
  end
end
