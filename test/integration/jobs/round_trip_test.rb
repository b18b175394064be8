# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# One process enqueues jobs, and another runs them.
class JobsRoundTripTest < Minitest::Test
  include JobsTest

  JOBS = NOTE + <<~RUBY
    class Keep
      include Chaton::Job
      def perform(name, value)
        File.write("\#{name}.part", JSON.generate([value, jid]))
        File.rename("\#{name}.part", name)
      end
    end

    class Low
      include Chaton::Job
      options queue: "low"
      def perform(id) = Recorder.note(id)
    end
  RUBY

  every_store def test_every_way_to_enqueue_works
    server = boot_jobs(JOBS, section: "queues \"default\", \"low\"")
    console = console(server)
    began_s = Recorder.now_s
    jids = console.run(<<~RUBY)
      [Note.perform_async("async"), Note.perform_in(1, "in"), Note.perform_at(Time.now.to_f + 1.2, "at"),
       Note.set(queue: "low").perform_async("set"), Low.perform_async("low"), Note.set(wait: 1.4).perform_async("wait"),
       *Note.perform_bulk((0...2_500).map { |n| ["bulk\#{n}"] })]
    RUBY
    assert_equal 2506, jids.uniq.size
    assert(jids.all?(/\A\h{24}\z/))
    server.eventually("all have run") { server.record.count == 2506 }
    drained(server, console)
    assert_equal [1], server.record.tally.values.uniq
    { "in" => 1.0, "at" => 1.2, "wait" => 1.4 }.each do |id, due_s|
      assert_operator server.record.of(id).first.at_s - began_s, :>=, due_s - 0.1
    end
    assert_equal 0, server.stop
    server.wait_all_gone
    # The worker writes its last counts at the latest when it stops.
    assert_equal 2506, stats(console)["processed"]
  end

  every_store def test_threads_and_forked_processes_enqueue
    server = boot_jobs(JOBS)
    console = console(server)
    console.run(<<~RUBY)
      Note.perform_async("before")
      threads = Array.new(8) { |n| Thread.new { 25.times { |m| Note.perform_async("t\#{n}.\#{m}") } } }
      forks = Array.new(3) { |n| fork { 25.times { |m| Note.perform_async("f\#{n}.\#{m}") }; exit!(0) } }
      threads.each(&:join)
      raise "a fork failed" unless forks.all? { |pid| Process.wait2(pid).last.success? }
      Note.perform_async("after")
    RUBY
    server.eventually("all have run") { server.record.count == 277 }
    drained(server, console)
    assert_equal [1], server.record.tally.values.uniq
    assert_equal 0, server.stop
  end

  every_store def test_requests_enqueue_in_a_process_that_also_runs_jobs
    rackup = "run ->(env) { [200, {}, [Note.perform_async(env[\"PATH_INFO\"]).to_s]] }"
    server = boot_jobs(JOBS, workers: "1", rackup: rackup)
    jids = Array.new(50) { |n| server.get("/#{n}").body }
    assert_equal 50, jids.grep(/\A\h{24}\z/).uniq.size
    server.eventually("all have run") { server.record.tally.size == 50 }
    assert_equal server.workers, server.record.entries.map(&:pid).uniq
    assert_equal 0, server.stop
  end

  def test_redis_works_by_unix_socket_and_with_another_database
    @kind = :redis
    @store = "unix://#{redis.socket}?db=3"
    server = boot_jobs(JOBS)
    console(server).run("Note.perform_async(1)")
    server.eventually("it ran") { server.record.count == 1 }
    client = Redis.new(url: redis.url(db: 3))
    assert_equal ["default"], client.smembers("queues")
    assert_equal 0, server.stop
  ensure
    client&.close
  end

  each_store def test_a_queue_keeps_its_order
    server = prepare_jobs(JOBS, threads: "1..1", section: "queues \"default\", \"low\"")
    console = console(server)
    console.run("100.times { |n| Low.perform_async(\"low\#{n}\") }")
    console.run("100.times { |n| Note.perform_async(n) }")
    server.start.ready
    server.eventually("all have run") { server.record.count == 200 }
    assert_equal [*Array.new(100, &:to_s), *Array.new(100) { |n| "low#{n}" }], server.record.ids
    assert_equal 0, server.stop
  end

  each_store def test_arguments_arrive_unchanged
    server = boot_jobs(JOBS)
    console = console(server)
    values = ["", "\u0000\u001F\"\\/\u2028\u2029\u007F", "日本語 🐈 é", -(2**70), (2**53) + 1, 1.5e300, -0.0, nil, true,
              [], {}, { "a" => [{ "" => nil }] }, "é".encode("UTF-8").unicode_normalize(:nfd)]
    values.each_with_index do |value, n|
      console.run("Keep.perform_async(\"v#{n}\", #{value.inspect})")
      assert_equal [value], [kept(server, "v#{n}").first]
    end
    assert_equal 0, server.stop
  end

  every_store def test_an_argument_of_ten_megabytes_arrives
    server = boot_jobs(JOBS)
    console = console(server)
    jid = console.run("Keep.perform_async(\"big\", \"x\" * 10_000_000 + \"é\")")
    value, seen = kept(server, "big")
    assert_equal [10_000_001, jid], [value.size, seen]
    drained(server, console)
    assert_equal 0, server.stop
  end

  each_store def test_arguments_that_json_cannot_represent_are_refused
    server = prepare_jobs(JOBS)
    console = console(server)
    { "\"\\xFF\".b" => /argument 1/, "\"\\xFF\"" => /argument 1/, ":a" => /Symbol/, "Time.now" => /Time/,
      "Float::NAN" => /argument 1/, "{ a: 1 }" => /Symbol/, "[[1, Object.new]]" => /Object/ }.each do |bad, message|
      raised = assert_raises(Console::Raised, bad) { console.run("Note.perform_async(#{bad})") }
      assert_equal "ArgumentError", raised.kind, "#{bad}: #{raised.message}"
      assert_match(message, raised.message, bad)
    end
    assert_equal 0, stats(console)["enqueued"]
  end

  private

  def kept(server, name)
    server.eventually("value #{name}") { File.exist?(server.path(name)) }
    JSON.parse(server.read(name))
  end
end
