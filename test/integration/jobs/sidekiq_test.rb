# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"
require "support/sidekiq_server"

# Chaton and a real Sidekiq share queues, as during a migration.
class JobsBesideSidekiqTest < Minitest::Test
  include JobsTest

  def setup
    needs_gems "sidekiq"
    super
  end

  # The job classes of both; they differ in MIXIN only. Plain is the same on both sides.
  JOBS = <<~RUBY
    require "sidekiq"
    class Note
      include MIXIN
      def perform(id, good = nil)
        Recorder.note(id)
        raise ArgumentError, "\#{id} fails" if good && good != "MIXIN"
      end
    end

    class Plain
      include Sidekiq::Worker
      sidekiq_options retry: 5, queue: "default"
      def perform(id) = Recorder.note("\#{id}:\#{jid.size}")
    end
  RUBY
  THEIRS = "Sidekiq::Worker"
  OURS = "Chaton::Job"

  def kind = :redis

  def time_limit_s = 90

  def test_each_runs_the_others_jobs
    server = boot_ours
    client = ruby_with_sidekiq(server)
    jids = client.run("[Note.perform_async(\"s1\"), Note.perform_in(1, \"s2\"), " \
                      "*Sidekiq::Client.push_bulk(\"class\" => Note, \"args\" => (0...500).map { |n| [\"b\#{n}\"] })]")
    assert_equal 502, jids.flatten.size
    server.eventually("ours ran Sidekiq's jobs") { server.record.tally.size == 502 }
    # An unchanged Sidekiq class runs in our worker and is enqueued from our console.
    [client, console(server, env: env)].each_with_index { |one, n| one.run("Plain.perform_async(\"p#{n}\")") }
    server.eventually("ours ran Sidekiq's class") { (%w[p0:24 p1:24] - server.record.ids).empty? }
    assert_equal 0, server.stop

    peer = start_sidekiq(server)
    console(server).run("Note.perform_async(\"c1\"); Note.perform_in(1, \"c2\"); " \
                        "Note.perform_bulk((0...500).map { |n| [\"d\#{n}\"] }); nil")
    server.eventually("Sidekiq ran ours", timeout_s: 60) { server.record.tally.size == 1006 }
    assert_includes server.record.entries.map(&:pid), peer.pid
    assert_equal [1], server.record.tally.values.uniq
  end

  # A class of the gem with options that only Chaton knows, and an application that enqueues it.
  ONCE = <<~RUBY
    require "sidekiq"
    class Once
      include Sidekiq::Worker
      sidekiq_options unique_for: 60, limit: { concurrency: 1 }, expires_in: 60, deadline: 5
      def perform(id)
        Recorder.note(id, "began")
        sleep 0.01 until File.exist?("go")
        Recorder.note(id)
      end
    end
  RUBY
  PUSH = <<~RUBY
    run lambda { |env|
      args = Array.new(3) { [env["QUERY_STRING"]] }
      jids = [Once.perform_async(*args[0]), Once.perform_in(60, *args[0]),
              *Sidekiq::Client.push_bulk("class" => Once, "args" => args)]
      [200, {}, [jids.map { |jid| jid.class }.join(" ")]]
    }
  RUBY

  def test_options_of_chaton_hold_for_classes_of_the_gem
    server = boot_jobs(ONCE, rackup: PUSH, workers: "web: 1, jobs: 1", env: { "REDIS_URL" => redis.url })
    assert_equal "String NilClass NilClass NilClass NilClass", server.get("/push?1").body
    server.eventually("it runs") { server.record.count("began") == 1 }
    assert_equal "String NilClass NilClass NilClass NilClass", server.get("/push?2").body
    console = console(server)
    server.eventually("the limit holds the other one up") { documents(console, "scheduled").size == 1 }
    assert_equal 1, server.record.count("began")
    extra = documents(console, "scheduled").first.fetch("chaton")
    assert_equal %w[deadline expires_at limits lock since until], extra.keys.sort
    refute documents(console, "scheduled").first.key?("unique_for")
    server.write("go", "")
    server.eventually("both ran") { server.record.count == 2 }
    refute_includes server.log, "no effect"
    plain = console(server, env: env, requires: %w[sidekiq ./app/jobs/jobs])
    plain.run("2.times { Once.perform_async(3) }")
    server.eventually("both ran, since another process pushed them") { server.record.count == 4 }
    assert_equal 1, server.log.scan(/options of the class have no effect.*class=Once.*options=unique_for/).size
    assert_equal 0, server.stop
  end

  def test_both_share_a_queue_without_losing_jobs
    server = boot_ours
    peer = start_sidekiq(server)
    client = ruby_with_sidekiq(server)
    console = console(server)
    20.times do |round|
      client.run("Note.perform_bulk((0...100).map { |n| [\"s#{round}.\#{n}\"] }); nil")
      console.run("Note.perform_bulk((0...100).map { |n| [\"c#{round}.\#{n}\"] }); nil")
    end
    server.eventually("all have run") { server.record.tally.size == 4000 }
    assert_equal [1], server.record.tally.values.uniq
    assert_operator server.record.entries.map(&:pid).uniq.size, :>, 1
    assert_equal 2, client.run("Sidekiq::ProcessSet.new.to_a.size")
    peer.stop
    assert_equal 0, server.stop
  end

  def test_each_runs_the_others_retries
    server = boot_ours
    client = ruby_with_sidekiq(server)
    # Each job fails unless the other server runs it.
    client.run("Note.perform_async(\"x\", \"#{THEIRS}\")")
    server.eventually("it failed here") { client.run("Sidekiq::RetrySet.new.size") == 1 }
    assert_equal 0, server.stop
    assert_equal "x fails", client.run("Sidekiq::RetrySet.new.first[\"error_message\"]")
    peer = start_sidekiq(server)
    client.run("Sidekiq::RetrySet.new.each(&:retry)")
    server.eventually("Sidekiq ran the retry") { server.record.of("x").size == 2 }
    client.run("Note.perform_async(\"y\", \"#{OURS}\")")
    server.eventually("it failed there") { client.run("Sidekiq::RetrySet.new.size") == 1 }
    assert_equal 0, client.run("Sidekiq::RetrySet.new.first[\"retry_count\"]")
    peer.stop
    server.start.ready
    # The retry is due now, and our scheduler finds it.
    redis.client.then do |one|
      document = one.zrange("retry", 0, 0).first
      one.zadd("retry", Time.now.to_f, document)
      one.close
    end
    server.eventually("ours ran the retry") { server.record.of("y").size == 2 }
    server.eventually("none is left") { client.run("Sidekiq::RetrySet.new.size").zero? }
    assert_equal server.workers.first, server.record.entries.last.pid
    assert_equal 0, server.stop
  end

  private

  def boot_ours = boot_jobs(JOBS.gsub("MIXIN", OURS), env: env)

  def env = { "REDIS_URL" => redis.url }

  def start_sidekiq(server)
    their_jobs(server)
    (@peers ||= []) << SidekiqServer.new(server.dir, redis.url, "their_jobs.rb").start
    @peers.last
  end

  # A process without Chaton.
  def ruby_with_sidekiq(server)
    their_jobs(server)
    console(server, env: env, requires: ["sidekiq/api", "./their_jobs"])
  end

  def their_jobs(server)
    server.write("their_jobs.rb", "require #{JobsServer::RECORDER.dump}\n#{JOBS.gsub("MIXIN", THEIRS)}")
  end

  def teardown
    (@peers || []).each(&:close)
    super
  end
end
