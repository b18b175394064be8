# frozen_string_literal: true

require "test_helper"
require "support/browser"
require "support/dashboard_case"

# The script of the dashboard in a browser, with a real server that fares badly.
class DashboardPageTest < Minitest::Test
  include DashboardCase

  # It waits until it is told to end.
  APP = <<~RUBY
    run(lambda do |env|
      sleep 0.01 until env["PATH_INFO"] == "/" || File.exist?("end")
      [200, {}, ["done"]]
    end)
  RUBY
  TILE = "[...document.querySelectorAll('.tile')].find((one) => one.innerText.startsWith(%s))"

  # A name that would run as a script, and turns the direction of writing.
  HOSTILE = "<img src=x onerror=document.title='gone'>\u202egnp.exe"

  def kind = :redis

  def teardown
    @browser&.close
    super
  end

  def test_trouble_is_red_and_what_is_not_known_is_not_zero
    server = open_page
    request_is_on_top(server)
    stopped_worker_is_red(server)
    killed_worker_is_named(server)
    cron_is_run
    queue_without_a_worker_is_marked(server)
    redis.stop
    shows("the sizes are not known") { tile("Jobs waiting").include?("unknown") && !@browser.text("#store").empty? }
    assert_match(/Sizes are unknown: .+/, @browser.text("#store"))
    assert_match(/orphan.*unknown/m, @browser.text("#queues"))
    assert_match(/Retries unknown/, @browser.text("#places"))
    shows("the worker of jobs is not ready") { @browser.text(".worker:last-child .pill.bad") == "not ready" }
    assert_empty @browser.complaints
  end

  def test_lists_are_searched_and_grouped_and_a_job_is_shown_in_full
    server = open_page { |one| one.write("tmp/chaton.history", "not mine") }
    shows("a foreign file is ignored") { @browser.text("#history-note").include?("chaton.history is ignored") }
    assert_match(/WARN .*chaton.history is ignored/, server.log)
    console(server).run(<<~RUBY)
      dead = Chaton::Jobs::DeadSet.new.native
      lines = [Zlib::Deflate.deflate(JSON.generate(["app/jobs/pay.rb:7:in `pay'", #{HOSTILE.dump}]))].pack("m0")
      60.times do |n|
        job = { queue: "default", class: n == 7 ? "Rare" : "Pay", args: [n, { "password" => "geheim" }], jid: format("%024d", n), retry_count: 3,
                error_class: "Timeout", error_message: "after \#{n} s", failed_at: 1.0, error_backtrace: lines }
        dead.add("dead", 1000.0 + n, JSON.generate(job))
      end
      dead.add("dead", 900.0, JSON.generate(class: #{HOSTILE.dump}, args: [], jid: "evil", queue: "q", error_message: "x"))
    RUBY
    shows("61 are dead") { @browser.text("#places").include?("Dead 61") }
    @browser.run("open('dead')")
    shows("50 of them") { @browser.text("#list-title") == "Dead: 1–50 of 61" }
    @browser.click("#older")
    shows("the other ones") { @browser.text("#list-title") == "Dead: 51–61 of 61" }
    assert_includes @browser.text("#entries"), HOSTILE.sub("\u202e", "‹U+202E›")
    groups_are_counted
    one_is_found_and_shown
    assert_equal [0, true], @browser.run("[document.images.length, document.title !== 'gone']")
    refute_includes @browser.run("document.documentElement.outerHTML"), "geheim"
    assert_empty @browser.complaints
  end

  def test_curves_of_a_day_have_axes_and_values_and_a_gap_where_nothing_is_known
    open_page { |one| one.write("tmp/chaton.history", history_file(Time.now.to_i)) }
    shows("the rate of the last polls") { tile("Requests / s").match?(/\ARequests . s\s+0\s/) }
    @browser.run("document.querySelector('.chart').focus()")
    @browser.key("ArrowLeft")
    shows("a value and its time") { tile("Requests / s").match?(/\ARequests . s\s+0\s.*at \d+:\d\d:\d\d/m) }
    @browser.key("Escape")
    shows("the axis") { tile("Requests / s").include?("2 min ago") }
    @browser.click("#spans button:nth-child(3)")
    shows("the axis") { tile("Requests / s").match?(/\ARequests . s.*42.*24 h ago/m) }
    waiting = "#{format(TILE, "Jobs waiting".to_json)}.querySelector('path').getAttribute('d')"
    # Two hours, then one of which nothing is known, then another one.
    shows("two parts of a curve") { @browser.run(waiting).count("M") == 2 && @browser.run(waiting).count("L") == 178 }
    assert_empty @browser.complaints
  end

  private

  # What a server wrote that ended a minute ago, after four hours (crates/admin/src/dashboard/history.rs).
  def history_file(now)
    points = (0...240).map do |minute|
      waiting = (120...180).cover?(minute) ? Float::NAN : 7
      [now - (60 * (240 - minute)), 42, 0, 3, 9, 1, 5, 0, waiting, 0, 0, 1e8].pack("L<e*")
    end
    text = "chaton history 1\n".b + [0].pack("L<") + [points.size].pack("L<") + points.join
    sum = text.each_byte.inject(0xcbf29ce484222325) { |all, byte| ((all ^ byte) * 0x100000001b3) & ((2**64) - 1) }
    text + [sum].pack("Q<")
  end

  def groups_are_counted
    @browser.click("#grouped")
    shows("two groups and the odd one") { @browser.text("#list-title") == "Dead: 3 groups" }
    assert_match(/59 × Pay.*Timeout: after \d+ s/m, @browser.text("#entries"))
    @browser.click("#entries button")
    shows("the jobs of a group") { @browser.text("#list-title").match?(/\ADead: 50 here of 61\z/) }
    @browser.click("#ungroup")
  end

  def one_is_found_and_shown
    @browser.run("$('filter').value = 'rare'; $('filter').dispatchEvent(new Event('input'))")
    shows("one is found") { @browser.text("#list-title") == "Dead: 1 of 61" }
    assert_includes @browser.text("#searched"), "61 entries were searched."
    @browser.click("#entries button")
    shows("its backtrace") { @browser.text("#job pre.trace").include?("app/jobs/pay.rb:7") }
    details = @browser.text("#job")
    assert_match(/Timeout: after 7 s.*‹U\+202E›/m, details)
    assert_match(/Arguments\s+7\s+\{\s+"password": "\[FILTERED\]"\s+\}/i, details)
    @browser.click("#job-close")
  end

  def open_page(&)
    @browser = Browser.new
    config = 'admin { bind "tcp://127.0.0.1:0" }; jobs { cron "yearly", "@yearly", "Note", args: [99] }'
    server = boot_jobs(JobsTest::NOTE, workers: "web: 1, jobs: 1", rackup: APP, config: config, &)
    @browser.open(server.control("dashboard")["url"])
    shows("the page is there") { @browser.text("#workers").include?("idle") }
    server
  end

  def shows(what, &) = @servers.first.eventually("the page shows that #{what}", timeout_s: WAIT_S, &)

  def tile(name) = @browser.run("(#{format(TILE, name.to_json)} || {}).innerText || ''")

  # Its time is between two bounds; what lies between was not measured.
  def request_is_on_top(server)
    request = Thread.new { server.get("/wait").body }
    shows("it runs") { @browser.text(".worker").match?(%r{GET /wait.*\d\.\d s}m) }
    @browser.click(".worker .bar button")
    shows("its thread is the first one") { @browser.text("#threads-list strong") == "GET /wait" }
    assert_match(/threads that wait for work/, @browser.text("#threads-list summary"))
    @browser.click("#threads-close")
    server.write("end", "")
    assert_equal "done", request.value
    shows("how long it took") { @browser.text("#times tr").match?(/Response\s+(1–2\.5|2\.5–5|5–10|10–20) s/) }
  end

  def stopped_worker_is_red(server)
    pid = server.workers.first
    Process.kill("STOP", pid)
    shows("it is stopped") { @browser.text(".worker .pill.bad") == "stopped" }
    assert_match(/kill -CONT #{pid} lets it go on/, @browser.text(".worker li.bad"))
    Process.kill("CONT", pid)
    shows("it goes on") { @browser.text(".worker .pill.good") == "ready" }
  end

  def killed_worker_is_named(server)
    pid = server.workers.last
    Process.kill("KILL", pid)
    shows("it died") do
      @browser.text("#deaths li.bad").match?(/Worker 1 \(pid #{pid}\) died .* ago, at .*: killed by SIGKILL/)
    end
    shows("another one is ready") { @browser.run("document.querySelectorAll('.worker .pill.good').length") == 2 }
  end

  def cron_is_run
    ticks = /yearly\s+none yet\s+in \d+ [dh].+Run now\s+Note\s+0 0 1 1 \* UTC/
    shows("an entry and its ticks") { @browser.text("#crons tr").match?(ticks) }
    @browser.click("#crons button")
    @browser.click("#question-yes")
    shows("a job is enqueued") { @browser.text("#notice").match?(/A job of yearly is enqueued: \h{24}/) }
    shows("it has run") { @servers.first.record.entries.map(&:id).include?("99") }
  end

  def queue_without_a_worker_is_marked(server)
    console(server).run("Note.set(queue: \"orphan\").perform_async(1)")
    shows("nobody works on it") { @browser.text("#queues").match?(/orphan no process works on it/) }
  end
end
