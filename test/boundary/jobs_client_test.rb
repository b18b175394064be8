# frozen_string_literal: true

require_relative "jobs_case"
require "socket"
require "tmpdir"

# The client against a store: what goes in comes out, and what is wrong is named.
class JobsClientTest < Minitest::Test
  include JobsCase

  def test_a_plain_job_becomes_a_document
    before = Time.now.to_f
    jid, = stressed { client.push_args("q", head("Resize"), [[7, "x"]], nil) }
    job, = documents
    assert_match(/\A\h{24}\z/, jid)
    assert_equal ["Resize", [7, "x"], jid, "q", true], job.values_at("class", "args", "jid", "queue", "retry")
    assert_in_delta before, job["created_at"], JobsCase::WAIT_S
    assert_equal job["created_at"], job["enqueued_at"]
  end

  def test_times_are_milliseconds_in_format_8
    client = new_client(format: 8)
    client.push_args("q", head, [[]], nil)
    job, = documents
    assert_kind_of Integer, job["created_at"]
    assert_in_delta Time.now.to_f * 1000, job["enqueued_at"], JobsCase::WAIT_S * 1000
  end

  def test_many_jobs_keep_their_order_and_have_unique_jids
    jids = stressed { client.push_args("q", head, Array.new(10) { |n| [n] }, nil) }
    assert_equal jids.uniq, jids
    assert_equal jids, documents.map { |job| job["jid"] }
    assert_equal (0..9).to_a, documents.flat_map { |job| job["args"] }
  end

  def test_jobs_with_a_time_are_scheduled
    client.push_args("q", head, [[1], [2]], [2e9, 3e9])
    client.push_args("q", head, [[3]], 2.5e9)
    scores = client.list("scheduled", 0, 10).map(&:first)
    assert_equal [2e9, 2.5e9, 3e9], scores
    assert_equal [[1], [3], [2]], documents("scheduled").map { |job| job["args"] }
    assert(documents("scheduled").none? { |job| job.key?("enqueued_at") })
  end

  def test_settings_are_checked
    assert_equal "settings: jobs.store.format: 5 is none of 6, 7, 8", refused { new_client(format: 5) }
    assert_match(/\Asettings: jobs\.store\.durable: invalid type/, refused { new_client(durable: "yes") })
    store = JSON.generate(JobsCase::STORE)
    assert_equal "settings: jobs.store.url: missing field", refused { Chaton::Native::JobsClient.new(store) }
  end

  def test_jids_can_be_given
    assert_equal %w[one two\"], client.push_args("q", head, [[], []], nil, %w[one two\"])
    assert_equal %w[one two\"], documents.map { |job| job["jid"] }
  end

  def test_lists_of_different_lengths_are_refused
    assert_match(/at has 1 times for 2 jobs/, refused { client.push_args("q", head, [[], []], [1.0]) })
    assert_match(/jids has 1 numbers for 2 jobs/, refused { client.push_args("q", head, [[], []], nil, ["a"]) })
    assert_match(/args of A is Integer; it must be an Array/, refused { client.push_args("q", head, [1], nil) })
    assert_match(/at is no finite number/, refused { client.push_args("q", head, [[]], Float::INFINITY) })
    assert_empty documents
    assert_empty client.push_args("q", head, [], nil)
  end

  def test_an_unknown_store_is_named_without_its_password
    error = assert_raises(Chaton::StoreRefused) do
      new_client(url: "ftp://me:secret@host/")
    end
    assert_kind_of Chaton::StoreError, error
    refute_match(/secret/, error.message)
  end

  def test_documents_are_stored_as_they_are
    assert_nil client.push("q", '{"class":"A","args":[],"jid":"a","odd":1.50}', nil, nil, nil)
    assert_equal '{"class":"A","args":[],"jid":"a","odd":1.50}', client.list("queue:q", 0, 1)[0][2]
  end

  def test_a_lock_that_is_held_names_its_holder
    pushes = %w[a b].map { |jid| ["q", %({"class":"A","args":[],"jid":"#{jid}"}), nil, ["key", jid, 60.0], nil] }
    assert_equal [nil, "a"], stressed { client.push_many(pushes) }
    client.unlock("key", "a")
    assert_nil client.push(*pushes.last)
  end

  def test_a_cron_tick_is_pushed_once
    pushed = Array.new(2) { client.push_once("cron:1", 60.0, "q", '{"class":"A","args":[],"jid":"a"}') }
    assert_equal [true, false], pushed
  end

  def test_jobs_are_found_moved_and_removed
    jid, = client.push_args("q", head, [[1]], nil)
    place, entry = stressed { client.find(jid) }
    assert_equal "queue:q", place
    assert client.kill(place, entry)
    refute client.kill(place, entry)
    place, entry = client.find(jid)
    assert_equal "dead", place
    assert client.requeue(place, entry)
    place, entry = client.find(jid)
    assert client.remove(place, entry)
    assert_nil client.find(jid)
  end

  def test_an_unknown_location_is_refused
    assert_match(/"shelf" is no place of jobs/, refused { client.list("shelf", 0, 1) })
    assert_match(/"queue:" is no place/, refused { client.clear("queue:", 0) })
  end

  def test_counts_and_queues
    client.push_args("q", head, [[1], [2]], nil)
    client.pause("q", true)
    assert_equal 2, stressed { client.stats }[:enqueued]
    queue, = client.queues
    assert_equal ["q", 2, true], queue.values_at(:name, :size, :paused)
    assert_equal 2, client.clear("queue:q", 0)
    assert_empty client.processes
    assert_empty client.owners
  end

  def test_small_hashes
    client.save("it-1", { "ex" => "1", "c" => "[\"é\"]" }, 60.0)
    assert_equal({ "ex" => "1", "c" => "[\"é\"]" }, stressed { client.load("it-1") })
    client.remove_hash("it-1")
    assert_empty client.load("it-1")
  end

  def test_cancels
    refute client.cancelled("a")
    client.cancel("a")
    assert client.cancelled("a")
  end

  def test_batches
    client.batch_open("b1", nil, "mails", [["success", "q", '{"class":"Told","args":[],"jid":"t"}']], 60.0, "")
    client.push("q", '{"class":"A","args":[],"jid":"a","bid":"b1"}', nil, nil, "b1")
    assert client.batch_close("b1")
    refute client.batch_close("b2")
    refute client.batch_remove("b1")
    status = stressed { client.batch("b1") }
    assert_equal ["b1", "mails", 1, 1], status.values_at(:bid, :description, :total, :pending)
    assert_equal [[], false, nil], status.values_at(:failed_jids, :success, :parent)
    assert_nil client.batch("b2")
  end

  def test_many_threads_share_a_client
    shared = client
    threads = Array.new(100) { |n| Thread.new { 5.times { |m| shared.push_args("q", head, [[n, m]], nil) } } }
    threads.each(&:join)
    assert_equal 500, client.stats[:enqueued]
  end

  def test_kills_and_timeouts_take_effect_after_the_call
    server = TCPServer.new("127.0.0.1", 0)
    url = "redis://127.0.0.1:#{server.addr[1]}/0"
    silent = new_client(url: url, answer_timeout_s: 2.0)
    { kill: [], raise: [IOError, "enough"] }.each do |how, arguments|
      heard = Queue.new
      thread = Thread.new do
        silent.stats
      rescue IOError, Chaton::StoreError => e
        heard << e.class
      end
      connection = server.accept
      thread.public_send(how, *arguments)
      assert thread.join(JobsCase::WAIT_S)
      assert_equal how == :raise ? [IOError] : [], Array.new(heard.size) { heard.pop }
      connection.close
    end
  ensure
    server&.close
  end

  def test_a_backup_reports_its_progress
    Dir.mktmpdir do |dir|
      client = new_client(url: "sqlite://#{dir}/jobs.db")
      client.push_args("q", head, Array.new(100) { |n| ["x" * n] }, nil)
      reported = []
      client.backup("#{dir}/copy.db") { |done, pages| reported << [done, pages] }
      assert_equal reported.last[0], reported.last[1]
      copy = new_client(url: "sqlite://#{dir}/copy.db")
      assert_equal 100, copy.stats[:enqueued]
      assert_raises(IOError) { client.backup("#{dir}/other.db") { raise IOError, "full" } }
      [client, copy].each(&:close)
    end
  end

  def test_a_forked_child_may_use_a_client
    client.push_args("q", head, [[1]], nil)
    reader, writer = IO.pipe
    pid = fork do
      writer.write(client.push_args("q", head, [[2]], nil).first.size)
      writer.close
      exit!(0)
    end
    writer.close
    assert_equal "24", reader.read
    Process.wait(pid)
    assert_equal 2, client.stats[:enqueued]
  end

  def test_jids_differ_after_a_fork
    client.push_args("q", head, [[1]], nil)
    reader, writer = IO.pipe
    pid = fork do
      writer.write(client.push_args("q", head, [[2]], nil).first)
      writer.close
      exit!(0)
    end
    writer.close
    here, = client.push_args("q", head, [[2]], nil)
    refute_equal here, reader.read
    Process.wait(pid)
  end

  def test_the_delay_before_a_retry
    assert_in_delta 15.0, Chaton::Native.retry_delay(0, 0.0)
    assert_in_delta 96.0, Chaton::Native.retry_delay(3, 0.0)
  end

  private

  def refused(&)
    assert_raises(ArgumentError, &).message
  end
end
