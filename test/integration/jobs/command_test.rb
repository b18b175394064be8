# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# The commands of `chaton jobs`, with and without a running server.
class JobsCommandTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    class Step
      include Chaton::Job
      options queue: "default", retry: 1
      def perform(id)
        raise IOError, "step \#{id} fails" if id.start_with?("bad")
        Recorder.note(id)
        sleep 0.01 until cancelled? if id == "patient"
      end
    end
    class Aside < Step
      options queue: "aside", unique_for: 60
    end
  RUBY

  every_store def test_waiting_jobs_are_listed_shown_and_moved
    server = prepare_jobs(JOBS)
    console = console(server)
    ids = console.run("%w[a b c].map { |id| Step.perform_async(id) } + [Step.perform_in(3600, \"later\")]")
    assert_equal %w[a b c], json(server, "list", "queue:default").map { |job| job["args"].first }
    places = json(server, "list").map { |job| job["place"] }
    assert_equal %w[queue:default queue:default queue:default scheduled], places
    assert_equal ids[3], json(server, "list", "scheduled").first["jid"]
    text = success(server, "list")
    assert_match(/^place +jid +class/, text)
    assert_includes text, ids[0]
    shown = json(server, "show", ids[3])
    assert_equal ["scheduled", ["later"], "Step"], [shown["place"], *shown["job"].values_at("args", "class")]
    assert_match(/^class +Step$/, success(server, "show", ids[0]))
    success(server, "retry", ids[3])
    success(server, "kill", ids[1])
    success(server, "delete", ids[0])
    assert_equal %w[c later], json(server, "list", "--queue", "default").map { |job| job["args"].first }
    assert_equal ["b"], json(server, "list", "dead").map { |job| job["args"].first }
    assert_equal({ "enqueued" => 2, "dead" => 1, "scheduled" => 0, "retries" => 0 },
                 json(server, "stats").slice("enqueued", "dead", "scheduled", "retries"))
    assert_equal [["default", 2, false]], json(server, "queues").map { |one| one.values_at("name", "size", "paused") }
  end

  each_store def test_cron_entries_with_their_ticks
    lines = ["cron \"tick\", \"* * * * * *\", \"Step\", args: [\"now\"]",
             "cron \"nightly\", \"0 3 * * *\", \"Step\", zone: \"Europe/Berlin\", queue: \"low\""]
    server = boot_jobs(JOBS, section: lines.join("\n"))
    server.eventually("a tick ran") { server.record.count.positive? }
    tick, nightly = json(server, "cron")
    assert_equal %w[tick Step], tick.values_at("name", "class")
    assert_operator tick["next_at"], :>, tick["last_at"]
    assert_in_delta Time.now.to_f, tick["last_at"], WAIT_S
    assert_equal ["low", "0 3 * * *", "Europe/Berlin", nil],
                 nightly.values_at("queue", "schedule", "zone", "last_at")
    head, first, second = success(server, "cron").lines
    assert_match(/^name +class +queue +schedule +zone +last +next$/, head)
    assert_match(/^tick +Step +- /, first)
    assert_match(/ - +#{Time.at(nightly["next_at"]).strftime("%Y-%m-%d %H:%M:%S")}$/, second)
    assert_equal 0, server.stop
  end

  each_store def test_queues_and_sets_are_emptied_at_once
    server = prepare_jobs(JOBS)
    console = console(server)
    console.run("Step.perform_bulk([[\"now\"]] * 1_200); nil")
    console.run("Step.perform_bulk([[\"later\"]] * 700, at: Time.now.to_f + 60); nil")
    out, err, status = server.jobs_command("drain", "default")
    assert_equal ["", 1], [out, status]
    assert_match(/1,?200 jobs.*--yes/, err)
    assert_equal 1200, json(server, "drain", "default", "--yes")["count"]
    assert_equal 700, json(server, "retry", "--all", "scheduled")["count"]
    assert_equal [700, 0], stats(console).values_at("enqueued", "scheduled")
    assert_equal 700, json(server, "delete", "--all", "queue:default", "--yes")["count"]
    assert_equal 0, stats(console)["enqueued"]
  end

  every_store def test_commands_act_on_a_running_server
    server = boot_jobs(JOBS, section: "lease_s 1.5")
    assert_equal "default", json(server, "enqueue", "Step", "[\"a\"]")["queue"]
    server.eventually("it ran") { server.record.of("a").any? }
    success(server, "pause", "default")
    assert_equal [true], json(server, "queues").map { |queue| queue["paused"] }
    success(server, "enqueue", "Step", "[\"b\"]")
    assert_equal 1, json(server, "stats")["enqueued"]
    success(server, "resume", "default")
    server.eventually("it ran after the pause") { server.record.of("b").any? }
    jid = json(server, "enqueue", "Step", "[\"patient\"]")["jid"]
    server.eventually("it runs") { server.record.of("patient").any? }
    _, err, status = server.jobs_command("show", jid)
    assert_equal 1, status
    assert_match(/#{jid}.*(?:runs in|ended)/, err)
    server.eventually("it is seen to run") { json(server, "processes").first["work"].map { |one| one["jid"] } == [jid] }
    success(server, "cancel", jid)
    server.eventually("it ended") { json(server, "stats")["in_flight"].zero? }
    success(server, "signal", json(server, "processes").first["identity"], "TSTP")
    server.eventually("it is quiet") { json(server, "processes").first["quiet"] }
    assert_equal 0, server.stop
  end

  each_store def test_a_job_is_enqueued_as_its_class_says
    server = prepare_jobs(JOBS)
    assert_equal "aside", json(server, "enqueue", "Aside", "[\"a\"]")["queue"]
    _, err, status = server.jobs_command("enqueue", "Aside", "[\"a\"]")
    assert_equal 1, status
    assert_match(/an equal job exists/, err)
    assert_equal "low", json(server, "enqueue", "Aside", "[\"a\"]", "-q", "low")["queue"]
    out, err, = server.jobs_command("enqueue", "Elsewhere", "[1]", "--json")
    assert_equal "default", JSON.parse(out)["queue"]
    assert_match(/warning: there is no class Elsewhere.*default options/, err)
    assert_match(/Recorder is not a job class/, server.jobs_command("enqueue", "Recorder")[1])
    assert_equal %w[aside default low], json(server, "queues").map { |queue| queue["name"] }
  end

  each_store def test_errors_name_the_mistake
    server = prepare_jobs(JOBS)
    console(server).run("Step.perform_async(\"a\"); nil")
    { %w[shwo x] => /no command "shwo".*show/, %w[show] => /JID is missing/, %w[show 0123] => /no job 0123/,
      %w[list ded] => /"ded".*dead/, %w[list default] => /queue:default/, %w[retry 0123] => /no job 0123/,
      %w[kill a b] => /too many: b/, %w[enqueue Step {}] => /array/i, %w[enqueue step] => /class/,
      %w[signal nobody TSTP] => /no process nobody/, %w[list --limit 0] => /--limit/,
      %w[stats --jsno] => /--jsno.*--json/ }.each do |words, message|
      out, err, status = server.jobs_command(*words)
      assert_equal ["", 1], [out, status], words.inspect
      assert_match(message, err, words.inspect)
      refute_match(/\.rb:\d+/, err)
    end
    out, _, status = server.jobs_command("--help")
    assert_equal 0, status
    %w[list show retry delete pause resume drain cancel stats].each { |name| assert_match(/^ +#{name}\b/, out) }
  end

  def test_an_unreachable_store_is_named
    @kind = :redis
    server = prepare_jobs(JOBS)
    redis.stop
    out, err, status = server.jobs_command("stats")
    assert_equal ["", 1], [out, status]
    assert_match(/127\.0\.0\.1:#{redis.port}/, err)
  end

  def test_a_file_in_use_can_be_backed_up
    @kind = :sqlite
    server = boot_jobs(JOBS)
    console = console(server)
    server.stop_between_writes(server.workers.first, @store.delete_prefix("sqlite://"))
    console.run("Step.perform_bulk((0...1000).map { |n| [\"j\#{n}\"] }); nil")
    assert_operator json(server, "backup", "copy.db")["bytes"], :>, 10_000
    _, err, status = server.jobs_command("backup", "copy.db")
    assert_equal 1, status
    assert_match(/copy\.db.* exists/, err)
    server.signal("CONT", server.workers.first)
    server.eventually("all ran") { server.record.count == 1000 }
    assert_equal 0, server.stop
    # The copy holds all jobs, those in flight included.
    copy = "sqlite://#{server.path("copy.db")}"
    assert_equal 1000, JSON.parse(success(server, "stats", "--json", "--store", copy))["enqueued"] +
                       JSON.parse(success(server, "stats", "--json", "--store", copy))["in_flight"]
  end

  def test_a_file_in_use_shrinks
    @kind = :sqlite
    server = boot_jobs(JOBS)
    console = console(server)
    console.run("Step.set(queue: \"unread\").perform_bulk((0...3000).map { |n| [\"j\#{n}\" * 200] }); nil")
    success(server, "drain", "unread", "--yes")
    sizes = json(server, "vacuum")
    assert_operator sizes["before"], :>, 2 * sizes["after"]
    console.run("Step.perform_async(\"after\")")
    server.eventually("a later job ran") { server.record.count == 1 }
    assert_equal 0, server.stop
  end

  def test_a_backup_of_redis_is_refused
    @kind = :redis
    _, err, status = prepare_jobs(JOBS).jobs_command("backup", "copy.rdb")
    assert_equal 1, status
    assert_match(/BGSAVE|Redis/i, err)
  end

  private

  def success(server, *words)
    out, err, status = server.jobs_command(*words)
    # On a busy machine long work tells how far it is.
    assert_equal [[], 0], [err.lines.grep_v(/\A\w+: +\d+ %  /), status], words.inspect
    out
  end

  def json(server, *words) = JSON.parse(success(server, *words, "--json"))
end
