# frozen_string_literal: true

require_relative "jobs_case"

# Jobs from a store through the engine, a native pool and a pool thread into Ruby's hands, and back.
class JobsJobTest < Minitest::Test
  include JobsEngineCase

  def test_a_job_shows_its_document
    job = run_one([7, { "a" => [1.5, nil] }], "Mail")
    jid = documents_of(job)["jid"]
    assert_equal ["Mail", "q", jid], [job.class_name, job.queue, job.jid]
    assert job.class_name.frozen? && job.queue.frozen?
    assert_same job.class_name, job.class_name
    assert_equal [7, { "a" => [1.5, nil] }], job.args
    assert_same job.args, job.args
    assert_in_delta documents_of(job)["enqueued_at"], job.enqueued_at
    assert_equal "Mail jid=#{jid} queue=q", job.describe
    assert_nil job.bid
    refute job.due? || job.cancelled? || job.deadline_over?
    assert_operator job.ticket, :>, 0
  end

  def test_times_in_milliseconds_are_read
    start
    client.push("q", '{"class":"A","args":[],"jid":"a","enqueued_at":1700000000123,"bid":"b7"}', nil, nil, nil)
    job = take
    assert_in_delta 1_700_000_000.123, job.enqueued_at
    assert_equal "b7", job.bid
    job.ack
  end

  def test_a_job_ends_once
    job = run_one([])
    assert job.open?
    job.ack
    refute job.open?
    %i[ack discard].each { |how| assert_raises(Chaton::ClosedError) { job.public_send(how) } }
    assert_raises(Chaton::ClosedError) { job.retry(1.0, "{}") }
    assert_raises(Chaton::ClosedError) { job.requeue }
    assert_idle
    assert_equal 1, @engine.stats[:processed]
    assert_equal 0, client.stats[:in_flight]
  end

  def test_each_outcome_puts_the_job_where_it_belongs
    ends = { retry: [2e9, '{"class":"R","args":[]}'], dead: ['{"class":"D","args":[]}'], reschedule: [2e9],
             discard: [] }
    ends.each do |how, arguments|
      job = run_one([])
      stressed { job.public_send(how, *arguments) }
      assert_idle
    end
    assert_equal [1, 1, 1, 0, 0], client.stats.values_at(:retries, :dead, :scheduled, :enqueued, :in_flight)
    assert_equal(%w[R D A], %w[retry dead scheduled].map { |place| documents(place)[0]["class"] })
    assert_equal 3, @engine.stats[:failed]
  end

  def test_a_requeued_job_is_at_the_front
    start
    client.push_args("q", head, [[1], [2]], nil)
    first = take
    first.requeue
    second = take
    second.ack
    third = take
    third.ack
    assert_equal [[1], [1], [2]], [first, second, third].map(&:args).sort
  end

  def test_a_job_that_is_garbage_collected_open_goes_back
    start
    client.push_args("q", head, [[1]], nil)
    # The value of a thread lives as long as the thread, which may be found on the stack.
    Thread.new { take && nil }.join
    eventually { GC.start || @engine.stats[:claimed] > 1 }
    job = take
    assert_equal [1], job.args
    job.ack
  end

  def test_arguments_are_read_as_by_json
    texts = ["[]", %q([ 1 , -2.5e3,"\u00e9\ud83d\ude00\n"]), "[18446744073709551616,-9223372036854775809]",
             "[-0,-0.0,0.0]", "[1E5,1e-3,1e23]", '[{"a":1,"a":2,"":{"é":[]}}]',
             "[9223372036854775808,18446744073709551615]", "[#{"[" * 90}#{"]" * 90}]",
             "[9.2e18,1e19,123456789012345678901234567890.5]", '["\u0000"]']
    texts.each do |text|
      job = run_text(text)
      # Since json 3 it refuses equal keys otherwise.
      expected = JSON.parse(text, allow_duplicate_key: true)
      actual = stressed { job.args }
      assert_equal expected.inspect, actual.inspect
      assert_equal strings(expected).map(&:encoding), strings(actual).map(&:encoding)
      job.ack
    end
  end

  def test_numbers_beyond_a_float_are_read_as_by_json
    # It warns of them.
    capture_io do
      job = run_text("[1e400,-1e400,1e-400]")
      assert_equal [Float::INFINITY, -Float::INFINITY, 0.0], job.args
      job.ack
    end
  end

  def test_keys_are_frozen_and_texts_are_not
    job = run_text('["x",{"key":"y"}]')
    text, hash = job.args
    assert hash.keys[0].frozen?
    refute text.frozen? || hash["key"].frozen?
    job.ack
  end

  def test_arguments_that_ruby_refuses_raise_what_ruby_raises
    ["[#{"[" * 101}#{"]" * 101}]", '["\ud800"]'].each do |text|
      job = run_text(text)
      assert_equal outcome { JSON.parse(text, max_nesting: 101) }, outcome { job.args }
      job.ack
    end
  end

  def test_many_jobs_under_stress
    start
    client.push_args("q", head, Array.new(20) { |n| [n, { "a" => "x" * n }] }, nil)
    seen = Array.new(20) do
      job = take
      stressed do
        args = job.args
        job.ack
        args
      end
    end
    assert_equal (0...20).to_a, seen.map(&:first).sort
    assert_idle
    assert_equal 20, @engine.stats[:processed]
  end

  private

  def outcome
    yield
  rescue JSON::ParserError => e
    e.class
  end

  def documents_of(job) = JSON.parse(job.payload)

  def strings(value)
    case value
    when String then [value]
    when Array then value.flat_map { |inner| strings(inner) }
    when Hash then value.flat_map { |key, inner| [key, *strings(inner)] }
    else []
    end
  end
end
