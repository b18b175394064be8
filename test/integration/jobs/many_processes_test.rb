# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Several servers share one store.
class JobsManyProcessesTest < Minitest::Test
  include JobsTest

  JOBS = NOTE + <<~RUBY
    class Tick
      include Chaton::Job
      # The tick's number: the job runs within the two seconds before the next tick.
      def perform(*) = Recorder.note(Time.now.to_i / 2)
    end
  RUBY
  # A unique job that takes longer than its ticks are apart, and one that middleware marks.
  LONG = <<~RUBY
    class Long
      include Chaton::Job
      options unique_for: 600, limit: { concurrency: 1 }
      LOCK = "SCRATCH/long"
      def perform
        File.open(LOCK, File::CREAT | File::RDWR) do |file|
          Recorder.note("two-at-once") unless file.flock(File::LOCK_EX | File::LOCK_NB)
          Recorder.note("begin")
          sleep 2.5
        end
        Recorder.note("end")
      end
    end
    class Marked
      include Chaton::Job
      def perform(_, mark = nil) = Recorder.note("marked-\#{mark}")
    end
    class Mark
      def call(_, item, *)
        item["args"] << "middleware" if item["class"] == "Marked" && item["args"].size == 1
        yield
      end
    end
    Chaton::Jobs.configure { |config| config.client_middleware { |chain| chain.add Mark } }
  RUBY
  SERVERS = { sqlite: 2, redis: 4, postgres: 4 }.freeze

  def time_limit_s = 90

  every_store def test_servers_share_the_jobs
    servers = boot_all
    console = console(servers.first)
    console.run("Note.perform_bulk((0...5_000).map { |n| [n] }); nil")
    servers.first.eventually("all have run") { ids(servers).size >= 5_000 }
    assert_equal [1], ids(servers).tally.values.uniq
    servers.first.eventually("each has a share") do
      console.run("Note.perform_bulk((0...500).map { |n| [n] }); nil")
      servers.all? { |one| one.record.count.positive? }
    end
    servers.first.eventually("all are registered") { console.run("Chaton::Jobs::ProcessSet.new.size") == servers.size }
    # One server is killed; the others keep running.
    servers.first.kill_all
    console.run("Note.perform_bulk((10_000...10_100).map { |n| [n] }); nil")
    rest = servers.drop(1)
    rest.first.eventually("the others do it") { (10_000...10_100).all? { |n| ids(rest).include?(n.to_s) } }
    rest.each { |server| assert_equal 0, server.stop }
  end

  every_store def test_a_cron_tick_is_enqueued_once
    servers = boot_all(section: "cron \"tick\", \"*/2 * * * * *\", \"Tick\"")
    servers.first.eventually("four ticks") { ids(servers).uniq.size >= 4 }
    servers.each { |server| assert_equal 0, server.stop }
    ticks = ids(servers).map(&:to_i).sort
    assert_equal [1], ticks.tally.values.uniq, ticks.inspect
    assert_equal (ticks.first..ticks.last).to_a, ticks
  end

  # Each class of two servers has client middleware, so that its ticks go through Ruby.
  each_store def test_ticks_have_the_options_of_their_class_and_pass_client_middleware
    lines = ["cron \"long\", \"* * * * * *\", \"Long\"", "cron \"marked\", \"* * * * * *\", \"Marked\", args: [1]"]
    servers = boot_all(LONG.sub("SCRATCH", scratch), section: lines.join("\n"))
    servers.first.eventually("two long jobs have ended") { ids(servers).count("end") >= 2 }
    servers.first.eventually("a marked job ran") { ids(servers).include?("marked-middleware") }
    console = console(servers.first)
    entries = console.run("Chaton::Jobs.cron.map { |one| [one.to_h, one.last_at.to_i, one.next_at.to_i] }")
    assert_equal [%w[long Long], %w[marked Marked]], entries.map { |one, *| one.values_at("name", "class_name") }
    entries.each { |_, last, following| assert_operator last, :<, following }
    servers.each { |server| assert_equal 0, server.stop }
    long = ids(servers).grep_v(/marked/)
    assert_operator long.count("begin"), :>=, 2
    refute_includes ids(servers), "two-at-once"
    refute_includes ids(servers), "marked-"
  end

  every_store def test_two_workers_of_one_server_wake_each_other
    server = boot_jobs(JOBS, workers: "jobs: 2", threads: "1..1")
    console = console(server)
    20.times do |n|
      console.run("Note.perform_async(#{n})")
      server.eventually("job #{n}") { server.record.count == n + 1 }
    end
    assert_equal [1], server.record.tally.values.uniq
    assert_equal 0, server.stop
  end

  private

  def boot_all(jobs = JOBS, **options)
    Array.new(SERVERS.fetch(kind)) { launch_jobs(jobs, **options) }.each(&:ready)
  end

  def ids(servers) = servers.flat_map { |server| server.record.ids }
end
