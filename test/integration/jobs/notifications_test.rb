# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# Jobs and ends of workers are published through ActiveSupport::Notifications.
class JobNotificationsTest < Minitest::Test
  include JobsTest

  JOBS = <<~RUBY
    require "active_support"
    require "active_support/notifications"
    require "chaton/logger"
    ActiveSupport::Notifications.subscribe(/\\.chaton\\z/) do |event|
      facts = event.payload.except(:exception_object)
      Chaton::Logger.new.info("seen \#{JSON.generate({ name: event.name, ms: event.duration, **facts })}")
    end
    class Note
      include Chaton::Job
      retry_in { :discard }
      def perform(text)
        raise KeyError, text if text == "broken"
      end
    end
  RUBY

  def kind = :sqlite

  def setup = needs_gems("activesupport")

  def test_jobs_and_the_end_of_a_worker_are_published
    server = boot_jobs(JOBS)
    jids = console(server).run('["fine", "broken"].map { |text| Note.perform_async(text) }')
    server.eventually("both are published") { seen(server, "job.chaton").size == 2 }
    fine, broken = jids.map { |jid| seen(server, "job.chaton").find { |one| one["jid"] == jid } }
    assert_equal ["Note", "default", nil], fine.values_at("class", "queue", "exception")
    assert_kind_of Float, fine["ms"]
    assert_equal %w[KeyError broken], broken["exception"]
    worker = server.workers.first
    Process.kill(:KILL, worker)
    server.eventually("its end is published") { seen(server, "restart.chaton").any? }
    ended = seen(server, "restart.chaton").first
    assert_equal [0, worker, ["jobs"], "killed by SIGKILL", false],
                 ended.values_at("worker", "pid", "roles", "status", "asked")
    server.wait_line(/worker ready/, count: 2)
    assert_equal 0, server.stop
    assert seen(server, "restart.chaton").last["asked"]
  end

  private

  def seen(server, name)
    server.log.scan(/seen (\{.*\})/).map { |json,| JSON.parse(json) }.select { |one| one["name"] == name }
  end
end
