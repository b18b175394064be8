# frozen_string_literal: true

require "test_helper"
require "support/dashboard_case"

# The dashboard's lists of jobs, and its actions on jobs and queues.
class JobsDashboardTest < Minitest::Test
  include DashboardCase

  JOBS = <<~RUBY
    class Bad
      include Chaton::Job
      options retry: false
      def perform(id)
        raise "it fails" unless File.exist?("mended")
        Recorder.note(id)
      end
    end
  RUBY

  def test_dead_jobs_run_again_or_are_deleted
    server = boot_jobs(JOBS, config: admin)
    console(server).run(<<~'RUBY')
      dead = Chaton::Jobs::DeadSet.new.native
      add = ->(number, **job) { dead.add("dead", Time.now.to_f + number, JSON.generate(queue: "default", **job)) }
      (1..3).each { |n| add.call(n, class: "Bad", args: [n], jid: format("%024d", n), error_message: "x" * 5000) }
      add.call(4, class: "<script>alert(1)</script>", args: ["secret"], jid: "evil", queue: "<b>", retry_count: 1e30)
    RUBY
    eventually_shown(server) { |shown| shown["jobs"]["store"]["sets"]["dead"] == 4 }
    list = page(server, "/jobs.json?place=dead", headers: BEARER)
    first, *others = list.json["jobs"]
    assert_equal ["<script>alert(1)</script>", "evil"], first.values_at("class", "jid")
    assert_operator first["failures"], :>, 0
    assert_equal [["Bad", 500]] * 3, others.map { |job| [job["class"], job["error"].size] }
    refute_match(/<script|secret/, list.body)
    assert_equal ["application/json", "nosniff"], list.headers.values_at("content-type", "x-content-type-options")
    server.write("mended", "")
    retrying = "/actions/retry?place=dead&jid=#{others.first["jid"]}&offset=0"
    assert_equal [200, 404], [post(server, retrying).status, post(server, retrying).status]
    server.eventually("it has run", timeout_s: WAIT_S) { ran(server) == ["3"] }
    assert_equal 200, post(server, "/actions/delete?place=dead&jid=evil").status
    assert_equal 2, post(server, "/actions/retry-all?place=dead&count=100").json["count"]
    server.eventually("all have run", timeout_s: WAIT_S) { ran(server).sort == %w[1 2 3] }
    eventually_shown(server) { |shown| shown["jobs"]["store"]["sets"]["dead"].zero? }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_of_ten_thousand_jobs_a_page_is_shown_and_a_part_is_deleted_at_once
    server = boot_jobs(JOBS, config: admin)
    console(server).run(<<~'RUBY')
      lists = (1..10_000).map { |n| [n] }
      Chaton::Jobs.client.push_bulk("class" => "Bad", "args" => lists, "at" => Time.now.to_f + 86_400)
    RUBY
    eventually_shown(server) { |shown| shown["jobs"]["store"]["sets"]["scheduled"] == 10_000 }
    list = page(server, "/jobs.json?place=scheduled&offset=9970", headers: BEARER)
    assert_equal [30, 9970], [list.json["jobs"].size, list.json["offset"]]
    list = page(server, "/jobs.json?place=scheduled", headers: BEARER)
    assert_equal 50, list.json["jobs"].size
    assert_equal 200, post(server, "/actions/delete-all?place=scheduled&count=100000").json["count"]
    eventually_shown(server) { |shown| shown["jobs"]["store"]["sets"]["scheduled"] == 9_800 }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_of_failed_jobs_those_of_a_search_die
    server = boot_jobs(JOBS, config: admin)
    console(server).run(<<~'RUBY')
      retries = Chaton::Jobs::RetrySet.new.native
      at = Time.now.to_f + 86_400
      (0...300).each do |n|
        name = n % 3 == 0 ? "Pay" : "Mail"
        retries.add("retry", at + n, JSON.generate(queue: "default", class: name, args: [n], jid: format("%024d", n)))
      end
    RUBY
    place = "place=retry&filter=PAY"
    list = page(server, "/jobs.json?#{place}", headers: BEARER).json
    assert_equal [(0..147).step(3).to_a, 148], [list["jobs"].map { |job| job["offset"] }, list["next"]]
    assert_equal 200, post(server, "/actions/kill?place=retry&jid=#{list["jobs"].last["jid"]}&offset=147").status
    first = post(server, "/actions/kill-all?#{place}&count=200").json
    assert_equal [66, 134], first.values_at("count", "next")
    rest = post(server, "/actions/kill-all?#{place}&count=200&offset=134").json
    assert_equal [33, nil], rest.values_at("count", "next")
    eventually_shown(server) { |shown| shown["jobs"]["store"]["sets"].values_at("retries", "dead") == [200, 100] }
    groups = page(server, "/groups.json?place=dead", headers: BEARER).json
    assert_equal [["Pay", 100]], groups["groups"].map { |group| group.values_at("class", "count") }
    assert_equal 404, page(server, "/job.json?place=retry&jid=#{list["jobs"].last["jid"]}", headers: BEARER).status
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  every_store def test_batches_that_have_not_succeeded_are_shown
    server = boot_jobs(JOBS, config: admin)
    server.write("mended", "")
    console(server).run(<<~RUBY)
      first, second = Chaton::Batch.new, Chaton::Batch.new
      first.description, second.description = ["first", "second <b>"]
      first.jobs { Bad.perform_async(1) }
      second.jobs { 2.times { |n| Bad.set(queue: "orphan").perform_async(n) } }
    RUBY
    server.eventually("the first one has succeeded", timeout_s: WAIT_S) do
      @batches = page(server, "/batches.json", headers: BEARER).json["batches"]
      @batches.map { |batch| batch["description"] } == ["second <b>"]
    end
    assert_equal [2, 2, 0, false], @batches.first.values_at("total", "pending", "failures", "dead")
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_cron_entries_have_ticks_and_are_run_now
    crons = <<~RUBY
      jobs do
        cron "nightly", "0 3 1 1 *", "Bad", zone: "Europe/Berlin", args: [7]
        cron "often", "* * * * * *", "Bad", args: [8]
      end
    RUBY
    server = boot_jobs(JOBS, config: admin + crons)
    server.write("mended", "")
    all = server.eventually("often has ticked", timeout_s: WAIT_S) do
      shown = page(server, "/crons.json", headers: BEARER).json["crons"]
      shown if shown.last["last_at"]
    end
    nightly, often = all
    assert_equal ["nightly", "Bad", "0 3 1 1 *", "Europe/Berlin", nil, nil],
                 nightly.values_at("name", "class", "schedule", "zone", "queue", "last_at")
    first = Time.at(nightly["next_at"]).utc
    assert_equal [1, 1, 2, 0], [first.month, first.day, first.hour, first.min], "3:00 in Berlin in winter"
    assert_in_delta often["last_at"], often["next_at"], 60
    done = post(server, "/actions/run-cron?name=nightly")
    assert_equal 200, done.status, done.body
    assert_equal 24, done.json["jid"].size
    server.eventually("it has run", timeout_s: WAIT_S) { ran(server).include?("7") }
    assert_equal 404, post(server, "/actions/run-cron?name=weekly").status
    assert_equal 2, document(server)["jobs"]["crons"]
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_arguments_are_shown_without_secrets_and_only_their_kinds_when_no_worker_answers
    server = boot_jobs(JOBS, config: admin)
    console(server).run(<<~'RUBY')
      dead = Chaton::Jobs::DeadSet.new.native
      add = ->(jid, args) { dead.add("dead", 1.0, JSON.generate(queue: "default", class: "Bad", jid: jid, args: args)) }
      add.call("plain", ["ada", { "password" => "geheim", "of" => [{ "api_key" => 1, "id" => 7 }] }, nil])
      add.call("wrapped", [{ "job_class" => "Other", "arguments" => [{ "token" => "geheim", "id" => 8 }] }])
      add.call("long", ["x" * 20_000])
    RUBY
    plain = values(server, "plain")
    assert_equal ["ada", { "password" => "[FILTERED]", "of" => [{ "api_key" => "[FILTERED]", "id" => 7 }] }, nil], plain
    assert_equal [{ "token" => "[FILTERED]", "id" => 8 }], values(server, "wrapped")
    assert_nil values(server, "long")
    pid = server.workers.first
    Process.kill("STOP", pid)
    server.eventually("it is stopped") { File.read("/proc/#{pid}/stat")[/\) (\w)/, 1] == "T" }
    job = page(server, "/job.json?place=dead&jid=plain", headers: BEARER).json
    assert_equal [nil, "a string, an object of 2, null"], job.values_at("values", "arguments")
    assert_match(/no worker answers|has not answered/, job["values_error"])
    Process.kill("CONT", pid)
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_a_queue_is_paused_and_resumed
    server = boot_jobs(JOBS, config: admin)
    server.write("mended", "")
    console = console(server)
    queue = ->(shown) { shown["jobs"]["store"]["queues"].find { |one| one["name"] == "default" } }
    console.run("Bad.perform_async(1)")
    server.eventually("it has run", timeout_s: WAIT_S) { ran(server) == ["1"] }
    assert_equal 200, post(server, "/actions/pause?queue=default").status
    eventually_shown(server) { |shown| queue.call(shown)&.fetch("paused") }
    console.run("Bad.perform_async(2)")
    eventually_shown(server) { |shown| queue.call(shown)&.fetch("size") == 1 }
    assert_equal "Bad", page(server, "/jobs.json?place=queue:default", headers: BEARER).json["jobs"].first["class"]
    assert_equal 409, post(server, "/actions/retry-all?place=queue:default&count=1").status
    assert_equal 200, post(server, "/actions/resume?queue=default").status
    server.eventually("it has run", timeout_s: WAIT_S) { ran(server) == %w[1 2] }
    eventually_shown(server) do |shown|
      shown["jobs"]["classes"].any? { |one| one.values_at("class", "queue", "done") == ["Bad", "default", 2] }
    end
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  private

  def values(server, jid)
    server.eventually("a worker answers", timeout_s: WAIT_S) do
      job = page(server, "/job.json?place=dead&jid=#{jid}", headers: BEARER).json
      return job["values"] if job["values"] || job["values_error"].include?("too long")
    end
  end
end
