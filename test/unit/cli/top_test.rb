# frozen_string_literal: true

require_relative "cli_case"
require "chaton/cli/top"
require "chaton/cli/top/sample"
require "chaton/cli/top/view"

# What `chaton top` computes and draws; test/integration/supervisor/top_test.rb has the terminal.
class TopViewTest < Minitest::Test
  Top = Chaton::CLI::Top

  def sample(at_s, requests: 0, first_pid: 43)
    workers = [{ "worker" => 0, "roles" => %w[web], "pid" => first_pid, "state" => "ready", "ready" => true,
                 "age_s" => 61, "running" => 3, "threads" => 4, "finished_total" => requests,
                 "requests_total" => requests, "memory" => { "pss" => 90 << 20, "soft" => 100 << 20 } },
               { "worker" => 1, "roles" => %w[jobs], "pid" => 44, "state" => "booting", "ready" => false,
                 "memory" => { "pss" => 95 << 20 } }]
    Top::Sample.new({ "version" => "1", "state" => "running", "pid" => 42, "uptime_s" => 5, "workers" => workers,
                      "memory" => { "total" => 200 << 20, "limit_tree" => 400 << 20 } }, at_s: at_s)
  end

  def view(rates = Top::Rates.new, paint: false)
    Top::View.new(rates, paint: Chaton::CLI::Paint.new(paint), glyphs: Chaton::CLI::Glyphs.new(unicode: false))
  end

  def lines(view, *keys, of: sample(0))
    keys.each { |key| view.press(key) }
    view.lines(of, rows: 16, columns: 120)
  end

  def test_bars_show_busy_threads_and_memory_against_the_ceilings
    shown = lines(view)
    assert_equal 16, shown.size
    assert_includes shown, "threads ###############----- 3 of 4 run work"
    assert_includes shown, "memory  ##########---------- 200 MiB of 400 MiB"
    assert(shown.any? { |line| line.match?(%r{^ +0 +web +43 .*  3/4 ######--  ceiling #######-*$}) })
    assert(shown.any? { |line| line.match?(%r{^ +1 +jobs +44  booting .* -/-$}) })
    assert_match(/\e\[31m#+\e/, view(paint: true).lines(full, rows: 16, columns: 100).join, "a full bar is red")
  end

  def test_rows_are_sorted_and_filtered
    by_worker = view
    assert_equal %w[0 1], workers(lines(by_worker))
    assert_equal %w[1 0], workers(lines(by_worker, "s")), "by memory"
    assert_equal %w[0 1], workers(lines(by_worker, "r"))
    assert_equal %w[1], workers(lines(by_worker, "f", "f"))
    assert_equal :quit, by_worker.press("q")
  end

  def test_numbers_that_matter_are_seen_in_80_columns
    stats = %w[processed failed enqueued scheduled retries dead in_flight processes].to_h { |name| [name, 123_456] }
    groups = [{ "name" => "billing", "topics" => ["a" * 40], "partitions" => 4, "lag" => 12_345 }]
    status = sample(0).status.merge("jobs" => { "store" => "redis://127.0.0.1/0", "stats" => stats, "queues" => [] },
                                    "streams" => { "broker" => "kafka://127.0.0.1:9092", "groups" => groups })
    text = view.lines(Top::Sample.new(status, at_s: 0), rows: 24, columns: 80).join("\n")
    ["dead 123,456", "processes 123,456", "lag 12,345 in 4 partitions", "  3/4 "].each do |part|
      assert_includes text, part
    end
  end

  def test_rates_and_their_curve
    rates = Top::Rates.new
    [0, 10, 40].each_with_index { |requests, at| rates.add(sample(at * 2, requests: requests)) }
    assert_equal [5.0, 15.0], rates.of("requests")
    assert_equal 15.0, rates.of_pid(43)
    assert(lines(view(rates)).any? { |line| line.include?("requests 15/s") && line.include?("-@") }, "a curve")
    rates.add(sample(6, requests: 1, first_pid: 45))
    assert_equal 0, rates.of("requests").last, "a replaced worker begins at 0"
  end

  def test_what_the_chosen_worker_runs
    one = view
    lines(one)
    lines(one, :down, :enter)
    assert_equal 1, one.opened.worker
    unit = { "age_ms" => 1_200, "thread" => 2, "cpu_ms" => 7, "what" => "Mail\e[2J", "context" => { "jid" => "ab" } }
    shown = one.lines(sample(0), rows: 16, columns: 100, units: [unit])
    assert_includes shown, "    1,200 ms  thread 2  cpu 7 ms  Mail [2J  jid=ab", "nothing can control the terminal"
    assert_includes one.lines(sample(0), rows: 16, columns: 100, units: "no answer"), "no answer"
    one.press(:escape)
    assert_nil one.opened
  end

  private

  def full
    status = sample(0).status
    Top::Sample.new({ **status, "memory" => { "total" => 399 << 20, "limit_tree" => 400 << 20 } })
  end

  def workers(lines) = lines.filter_map { |line| line[/^ +(\d+) +(?:web|jobs) /, 1] }
end
