# frozen_string_literal: true

require_relative "names_case"

# Sidekiq's names for counters and processes.
class SidekiqCountsTest < NamesCase
  # Stands for the native client.
  Seen = Struct.new(:processes, :signals) do
    def signal(*words) = signals << words
    def load(_key) = {}
  end

  def test_counters
    Listed.perform_bulk([[1], [2]])
    stats = Sidekiq::Stats.new
    assert_equal [0, 0, 2, 0], [stats.processed, stats.failed, stats.enqueued, stats.workers_size]
    assert_equal 2, stats.queues["low"]
    low = stats.queue_summaries.first
    assert_equal ["low", 2, false], [low.name, low.size, low.paused?]
    assert_kind_of Float, stats.default_queue_latency
    stats.reset("failed", :nonsense)
    stats.reset
    assert_equal 0, Sidekiq::Stats.new.processed
  end

  def test_counts_of_days
    history = Sidekiq::Stats::History.new(2, Date.new(2012, 12, 25))
    assert_equal({ "2012-12-25" => 0, "2012-12-24" => 0 }, history.processed)
    assert_equal history.processed, history.failed
    assert_raises(ArgumentError) { Sidekiq::Stats::History.new(0) }
    return unless REDIS

    Redis.new(url: STORE_URL).set("stat:failed:2012-12-24", 3)
    assert_equal 3, Sidekiq::Stats::History.new(2, Date.new(2012, 12, 25)).failed["2012-12-24"]
  end

  def test_processes_and_what_they_run
    capsules = { "default" => { "weights" => { "a" => 2 } }, "one" => { "weights" => { "b" => 0 } } }
    info = JSON.generate("pid" => 7, "concurrency" => 5, "capsules" => capsules, "version" => "8", "labels" => ["x"])
    row = { identity: "h:7:n", info: info, busy: 2, quiet: true, rss_kb: 9, beat_at: 1.5,
            work: [["t2", "low", JSON.generate(document("new")), 20],
                   ["t1", "low", JSON.generate(document("old")), 10]] }
    native = Seen.new([row], [])
    set = Sidekiq::ProcessSet.new(native: native)
    process = set.first
    assert_equal [7, 2, 1.5, 5, %w[a b], { "a" => 2, "b" => 0 }, "8", ["x"], true, false],
                 [process["pid"], process["busy"], process["beat"], process["concurrency"], process.queues,
                  process.weights, process.version, process.labels, process.stopping?, process.embedded?]
    process.stop!
    assert_equal [[["h:7:n", "TERM"]], 5, 9, 1], [native.signals, set.total_concurrency, set.total_rss_in_kb, set.size]
    assert_raises(RuntimeError) { Sidekiq::Process.new("embedded" => true).quiet! }
    works = Sidekiq::WorkSet.new(native: native)
    assert_equal([%w[h:7:n t1 old], %w[h:7:n t2 new]], works.map { |id, thread, work| [id, thread, work.job.jid] })
    assert_equal Time.at(20), works.find_work("new").run_at
    assert_equal ["low", 20, nil], %w[queue run_at other].map { |name| works.find_work("new")[name] }
    assert_nil works.find_work("none")
  end
end
