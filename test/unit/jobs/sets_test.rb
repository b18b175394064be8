# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class SetsTest < Minitest::Test
  # The reading half of the native client, over one place.
  class Store
    attr_reader :entries, :signals

    def initialize(count)
      @entries = (0...count).map do |number|
        [number + 1.0, number, JSON.generate("jid" => number.to_s, "class" => "A", "args" => [number], "queue" => "q",
                                             "created_at" => 1.5, "failed_at" => 1500)]
      end
      @signals = []
    end

    def list(_place, offset, count) = @entries[offset, count] || []
    def find(jid) = ["retry", @entries.find { |entry| JSON.parse(entry[2])["jid"] == jid }]
    def remove(_place, entry) = !@entries.delete(entry).nil?
    alias requeue remove
    alias kill remove
    def clear(_place, max) = @entries.shift(max).size
    def stats = { processed: 5, failed: 1, retries: @entries.size, scheduled: 0, dead: 0 }
    def queues = [{ name: "q", size: @entries.size, latency_s: 1.5, paused: @paused || false }]
    def pause(_name, paused) = @paused = paused
    def signal(identity, name) = @signals << [identity, name]

    def processes
      info = '{"hostname":"h","pid":1}'
      [{ identity: "h:1:n", info: info, busy: 1, quiet: false, rss_kb: 9, beat_at: 1.5, work: [] }]
    end
  end

  def test_a_set_is_read_page_by_page
    set = Chaton::Jobs::RetrySet.new(Store.new(250))
    assert_equal 250, set.count
    assert_equal 250, set.size
    assert_equal %w[0 1], set.page(0, 2).map(&:jid)
    assert_equal "7", set.find_job("7").jid
    assert_nil Chaton::Jobs::DeadSet.new(Store.new(9)).find_job("7")
  end

  def test_all_can_be_deleted_while_they_are_read
    store = Store.new(250)
    Chaton::Jobs::RetrySet.new(store).each(&:delete)
    assert_empty store.entries
  end

  def test_all_can_be_retried_killed_and_cleared
    assert_equal 250, Chaton::Jobs::RetrySet.new(Store.new(250)).retry_all
    assert_equal 250, Chaton::Jobs::RetrySet.new(Store.new(250)).kill_all
    assert_equal 2500, Chaton::Jobs::ScheduledSet.new(Store.new(2500)).clear
  end

  def test_entries_that_are_no_jobs_hold_up_no_others
    store = Store.new(250)
    store.entries.each_with_index { |entry, index| entry[2] = "no job" if (index % 125).zero? }
    def store.requeue(place, entry)
      entry[2] == "no job" ? raise(Chaton::StoreRefused, "it is no job") : remove(place, entry)
    end
    set = Chaton::Jobs::RetrySet.new(store)
    assert_equal 248, set.retry_all
    assert_equal ["no job", "no job"], store.entries.map(&:last)
    assert_includes assert_raises(Chaton::StoreRefused) { set.retry_all }.message, "it is no job"
  end

  def test_a_record
    record = Chaton::Jobs::RetrySet.new(Store.new(1)).first
    assert_equal ["0", "q", "A", [0]], [record.jid, record.queue, record.job_class, record.args]
    assert_equal Time.at(1.0), record.at
    assert_equal [Time.at(1.5), Time.at(1.5)], [record.created_at, record.failed_at], "seconds, and milliseconds"
    wrapped = Chaton::Jobs::JobRecord.new(nil, "dead", [0, 0, '{"wrapped":"W","args":[{"arguments":[1]}]}'])
    assert_equal ["W", [1], nil], [wrapped.job_class, wrapped.args, wrapped.at]
    assert_empty Chaton::Jobs::JobRecord.new(nil, "dead", [0, 0, "{broken"]).item
  end

  def test_queues_workers_and_counters
    store = Store.new(3)
    queue = Chaton::Jobs::Queue.all(store).first
    queue.pause
    assert_equal ["q", 3, 1.5, true], [queue.name, queue.size, queue.latency, queue.paused?]
    queue.resume
    refute_predicate queue, :paused?
    assert_equal 0, Chaton::Jobs::Queue.new("none", store).size
    worker = Chaton::Jobs::ProcessSet.new(store).first
    worker.quiet!
    worker.stop!
    assert_equal [["h", 1, 1], [%w[h:1:n TSTP], %w[h:1:n TERM]]],
                 [[worker["hostname"], worker["pid"], worker.busy], store.signals]
    stats = Chaton::Jobs::Stats.new(store)
    assert_equal [5, 1, 3, { "q" => 3 }], [stats.processed, stats.failed, stats.retries, stats.queues]
  end
end
