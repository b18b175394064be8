# frozen_string_literal: true

require "test_helper"
require "net/http"
require "support/jobs_test_case"

# Sidekiq's own API and web pages (Debian's gem) show and control our workers, in an application that Chaton serves.
class JobsSidekiqWebTest < Minitest::Test
  include JobsTest

  def setup
    needs_gems "sidekiq"
    super
  end

  # Since Rack 3 sessions are a gem of their own.
  RACKUP = <<~RUBY
    require "sidekiq/web"
    require "rack/session" if Rack.release.to_i > 2
    use Rack::Session::Cookie, secret: "0123456789abcdef" * 4, same_site: true
    run Sidekiq::Web
  RUBY
  JOBS = <<~RUBY
    class Step
      include Chaton::Job
      options queue: "default", retry: 2
      def perform(id, seconds = 0)
        Recorder.note(id, "began")
        sleep seconds
        raise IOError, "step \#{id} fails" if id.start_with?("bad") && !File.exist?("mended")
        Recorder.note(id, "ended")
      end
    end
  RUBY

  # A hash until Sidekiq 7.2, then an object.
  WORK = 'work.is_a?(Hash) ? work.values_at("payload", "run_at") : [work.payload, work.run_at.to_i]'
  FORMAT = Gem::Specification.find_all_by_name("sidekiq").map { |gem| gem.version.segments.first }.max.to_i

  def kind = :redis

  def time_limit_s = 90

  # A client that keeps the session's cookie like a browser.
  class Browser
    def initialize(port)
      @http = Net::HTTP.new("127.0.0.1", port)
      @cookie = nil
    end

    def get(path) = ask(Net::HTTP::Get.new(path))

    # Submits a form with the CSRF token of its page; Sidekiq 8 has none and reads Sec-Fetch-Site.
    def press(page, path, **fields)
      token = get(page).body[/authenticity_token['"] value=['"]([^'"]+)/, 1]
      ask(Net::HTTP::Post.new(path).tap { |post| post.set_form_data({ "authenticity_token" => token, **fields }) })
    end

    private

    def ask(request)
      request["Cookie"] = @cookie if @cookie
      request["Sec-Fetch-Site"] = "same-origin"
      @http.request(request).tap { |answer| @cookie = answer["Set-Cookie"]&.split(";")&.first || @cookie }
    end
  end

  def test_pages_show_and_control_our_workers
    server = boot_web
    browser = Browser.new(server.port)
    console = console(server)
    jid = console.run("Step.perform_async(\"long\", 600)")
    identity = console.run("Chaton::Jobs::ProcessSet.new.first.identity")
    server.eventually("the page shows what runs") { browser.get("/busy").body.include?(jid) }
    page = browser.get("/busy").body
    assert_includes page, identity
    assert_includes page, "Step"
    assert_equal "200", browser.get("/").code
    answer = browser.press("/busy", "/busy", "identity" => identity, "quiet" => "1")
    assert_equal "302", answer.code
    server.eventually("it is quiet") { console.run("Chaton::Jobs::ProcessSet.new.map(&:quiet)") == [true] }
    console.run("Step.perform_async(\"waits\")")
    server.eventually("the page shows the queue") { browser.get("/queues/default").body.include?("waits") }
    worker = server.workers.last
    browser.press("/busy", "/busy", "identity" => identity, "stop" => "1")
    server.eventually("the worker stops", timeout_s: 20) { !server.alive?(worker) }
    server.eventually("the replacement goes on") { server.record.of("waits").any? }
    server.stop
  end

  def test_pages_show_retries_and_retry_delete_or_kill_them
    server = boot_web
    browser = Browser.new(server.port)
    console = console(server)
    jids = %w[bad1 bad2 bad3].to_h { |id| [id, console.run("Step.perform_async(#{id.dump})")] }
    server.eventually("they have failed") { stats(console)["retries"] == 3 }
    page = browser.get("/retries").body
    %w[bad1 bad2 bad3].each { |id| assert_includes page, "step #{id} fails" }
    keys = jids.transform_values { |jid| page[/["']([\d.]+-#{jid})["']/, 1] }
    assert_equal "200", browser.get("/retries/#{keys["bad1"]}").code
    server.write("mended", "")
    browser.press("/retries", "/retries/#{keys["bad1"]}", "retry" => "Retry Now")
    browser.press("/retries", "/retries/#{keys["bad2"]}", "delete" => "Delete")
    browser.press("/retries", "/retries/#{keys["bad3"]}", "kill" => "Kill")
    server.eventually("the retry ran") { server.record.of("bad1").last.event == "ended" }
    server.eventually("each has moved") { stats(console).values_at("retries", "dead") == [0, 1] }
    assert_includes browser.get("/morgue").body, "step bad3 fails"
    browser.press("/morgue", "/morgue/all/retry", "retry" => "Retry All")
    server.eventually("so did the dead one") { server.record.of("bad3").last.event == "ended" }
    assert_equal 0, server.stop
  end

  def test_the_api_reports_workers_and_counts
    server = boot_web
    api = console(server, env: env, requires: ["sidekiq/api"])
    console = console(server)
    # The first call loads the API.
    api.run("nil")
    jid = console.run("Step.perform_async(\"long\", 6)")
    server.eventually("work") { api.run("Sidekiq::Workers.new.size") == 1 }
    payload, run_at = api.run("Sidekiq::Workers.new.first.last.then { |work| #{WORK} }")
    assert_equal jid, (payload.is_a?(String) ? JSON.parse(payload) : payload)["jid"]
    assert_in_delta Time.now.to_i, run_at, 30
    console.run("Step.perform_in(3600, \"later\"); Step.perform_async(\"bad\")")
    server.eventually("it failed") { api.run("Sidekiq::RetrySet.new.size") == 1 }
    server.eventually("all ended, and was counted", timeout_s: 20) do
      api.run("Sidekiq::Stats.new.then { |s| [s.processed, s.failed, s.scheduled_size, s.retry_size, s.enqueued] }") ==
        [2, 1, 1, 1, 0]
    end
    process = api.run("Sidekiq::ProcessSet.new.map { |p| [p.identity, p[\"concurrency\"], p[\"queues\"], p[\"pid\"]] }")
    identity = console.run("Chaton::Jobs::ProcessSet.new.first.identity")
    assert_equal [[identity, 8, ["default"], server.workers.last]], process
    assert_equal "later", api.run("Sidekiq::ScheduledSet.new.first.args.first")
    api.run("Sidekiq::ProcessSet.new.each(&:quiet!)")
    server.eventually("it is quiet") { api.run("Sidekiq::ProcessSet.new.map { |p| p[\"quiet\"] }") == ["true"] }
    assert_equal 0, server.stop
    assert_equal 0, api.run("Sidekiq::ProcessSet.new.size")
  end

  private

  def env = { "REDIS_URL" => redis.url }

  def boot_web
    boot_jobs(JOBS, workers: "web: 1, jobs: 1", rackup: RACKUP, env: env, section: "lease_s 2.5\nformat #{FORMAT}",
                    config: "shutdown_timeout_s 1\n#{JobsServer::QUICK}")
  end
end
