# frozen_string_literal: true

require_relative "jobs_case"

# The engine as an object: what it takes, what it gives back, and what it says of itself.
class JobsEngineTest < Minitest::Test
  include JobsEngineCase

  def test_the_outcome_of_a_job_that_was_sent_back_is_ignored
    job = run_one([1])
    assert_equal [0, [job.ticket]], @engine.give_up
    refute job.open?
    @engine.quiet
    job.ack
    assert_idle
    assert_equal [0, 1], client.stats.values_at(:in_flight, :enqueued)
    assert_equal 0, @engine.stats[:processed]
  end

  def test_the_in_flight_table_names_running_jobs
    job = run_one([])
    assert_equal @engine.identity, @table.identity(0)
    (ticket, jid, at), *others = @table.started(0)
    assert_equal [job.ticket, job.jid], [ticket, jid]
    assert_in_delta Time.now.to_f * 1000, at, JobsCase::WAIT_S * 1000
    assert_empty others
    job.ack
    assert_empty @table.started(0)
  end

  def test_malformed_documents_are_not_run
    _, log = capture_subprocess_io do
      start
      client.push("q", '{"class":"A"}', nil, nil, nil)
      client.push_args("q", head("B"), [[]], nil)
      job = take
      assert_equal "B", job.class_name
      job.ack
      assert_idle
    end
    assert_equal 1, client.stats[:dead]
    assert_match(/missing field `args`.*it is in the dead set/, log)
  end

  def test_due_jobs_pass_through_ruby_if_claimed
    start(claim_due: true)
    client.push_args("q", head, [[1]], Time.now.to_f - 1)
    job = take
    assert job.due?
    job.ack
    assert_idle
    assert_equal [0, 0, 0], client.stats.values_at(:in_flight, :scheduled, :enqueued)
  end

  def test_an_engine_that_is_quiet_claims_nothing
    start
    @engine.quiet
    client.push_args("q", head, [[1]], nil)
    assert @engine.wait_idle(JobsCase::WAIT_S)
    assert_equal [1, 0], client.stats.values_at(:enqueued, :in_flight)
    @engine.resume
    take.ack
  end

  def test_waiting_jobs_are_sent_back
    start
    client.push_args("q", head, Array.new(4) { |n| [n] }, nil)
    running = take
    @engine.quiet
    refute @engine.wait_idle(0.0)
    running.ack
    assert_idle
    assert_equal [3, 0], client.stats.values_at(:enqueued, :in_flight)
  end

  def test_the_jobs_of_a_dead_sibling_are_reclaimed
    start
    @engine.recover("gone:1:0", "SIGSEGV", [1, 2])
    @engine.recover("gone:1:0", nil, [])
    client.push_args("q", head, [[1]], nil)
    take.ack
  end

  def test_errors_name_the_wrong_setting
    { "mode" => { mode: "odd" }, "queues.0.0" => { queues: [["q"]] }, "beat_s" => { beat_s: -1.0 },
      "labels" => { labels: nil }, "threads" => { threads: 4 },
      "store.format" => { store: { **store_settings, format: 5 } } }.each do |path, change|
      assert_includes refused(ArgumentError, **change), "settings: jobs.#{path}: "
    end
    crons = [["c", "61 * * * *", "UTC", "q", "{", nil, nil]]
    assert_match(/cron "c"/, assert_raises(ArgumentError) { start(crons: crons) }.message)
    refused(IndexError, slot: 2)
  end

  def test_calls_in_a_forked_child_raise
    job = run_one([3])
    reader, writer = IO.pipe
    pid = fork do
      found = [-> { @engine.stats }, -> { job.ack }].map do |call|
        call.call
      rescue Chaton::ForkedError
        "forked"
      end
      writer.write(JSON.generate([*found, job.args]))
      writer.close
      exit!(0)
    end
    writer.close
    assert_equal ["forked", "forked", [3]], JSON.parse(reader.read)
    Process.wait(pid)
    job.ack
    assert_idle
    assert_equal 0, client.stats[:in_flight]
  end

  private

  def refused(error, **changes)
    pool = new_pool(**changes)
    assert_raises(error) { start(pool: pool) }.message
  ensure
    pool&.shut
  end
end
