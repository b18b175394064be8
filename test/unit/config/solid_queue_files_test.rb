# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require "chaton/config"

class SolidQueueFilesTest < Minitest::Test
  SCHEDULES = {
    "0 3 * * *" => ["0 3 * * *", nil], "*/5 * * * * Europe/Berlin" => ["*/5 * * * *", "Europe/Berlin"],
    "@hourly" => ["@hourly", nil], "every minute" => ["* * * * *", nil], "every 30 seconds" => ["*/30 * * * * *", nil],
    "every 15 minutes" => ["*/15 * * * *", nil], "every 2 hours" => ["0 */2 * * *", nil],
    "every hour at minute 12" => ["12 * * * *", nil], "every day at 3am" => ["0 3 * * *", nil],
    "every day at 12:30am" => ["30 0 * * *", nil], "at 5pm every day" => ["0 17 * * *", nil],
    "every day at noon" => ["0 12 * * *", nil], "every monday at 9:05 UTC" => ["5 9 * * 1", "UTC"],
    "every weekday at 8am" => ["0 8 * * 1-5", nil],
    "every 40 minutes" => nil, "every first of the month" => nil, "every 0 minutes" => nil, "" => nil
  }.freeze

  def setup
    @root = Dir.mktmpdir("chaton-solid")
    FileUtils.mkdir_p(File.join(@root, "config"))
    write("chaton.rb", "jobs {}")
  end

  def teardown
    FileUtils.remove_entry(@root)
  end

  def test_schedules_in_words
    seen = SCHEDULES.keys.to_h { |text| [text, Chaton::Config::SolidQueueFiles.schedule(text)] }
    assert_equal SCHEDULES, seen
  end

  def test_recurring_jobs_and_queues_are_read
    write("recurring.yml", <<~YAML)
      production:
        clear_solid_queue_finished_jobs:
          command: "SolidQueue::Job.clear_finished_in_batches"
          schedule: every hour at minute 12
        nightly:
          class: NightlyJob
          args: [7, { "deep": true }]
          queue: low
          schedule: every day at 3am
    YAML
    write("queue.yml", <<~YAML)
      production:
        workers:
          - queues: [critical, low]
            threads: <%= 2 + 1 %>
          - queues: "mail, low"
    YAML
    jobs = load("production").jobs
    assert_equal ["nightly: 0 3 * * * UTC → NightlyJob (low)"], jobs.crons.map(&:to_s)
    assert_equal [7, { "deep" => true }], jobs.crons.first.args
    assert_equal [%w[critical low mail], 1, 3],
                 [jobs.queues.map(&:first), jobs.threads.threads_min, jobs.threads.threads_max]
    assert_empty load("test").jobs.crons
  end

  def test_the_configuration_goes_before
    write("chaton.rb", 'jobs { queues "own"; cron "own", "@daily", "OwnJob" }')
    write("recurring.yml", "other: { class: OtherJob, schedule: every minute }")
    write("queue.yml", "workers: [{ queues: other }]")
    jobs = load("production").jobs
    assert_equal [["own"], ["own"]], [jobs.crons.map(&:name), jobs.queues.map(&:first)]
  end

  def test_all_queues_are_noted
    write("queue.yml", "workers: [{ queues: '*' }]")
    plan = load("production")
    assert_match(%r{config/queue\.yml: queues "\*" is not read: write jobs \{ queues}, plan.notes.join("\n"))
    assert_equal ["default"], plan.jobs.queues.map(&:first)
  end

  def test_what_would_not_run_is_an_error
    write("recurring.yml", "a: { command: 'A.call', schedule: every minute }\nb: { class: B, schedule: now and then }")
    error = assert_raises(Chaton::Config::Invalid) { load("production") }
    assert_match(/recurring\.yml: a: a command has no counterpart; write a job class: jobs { cron "a"/, error.message)
    assert_match(/recurring\.yml: b: its schedule "now and then" is not understood/, error.message)
  end

  private

  def load(environment) = Chaton::Config.load({ environment: environment }, env: {}, root: @root)

  def write(name, text) = File.write(File.join(@root, "config", name), text)
end
