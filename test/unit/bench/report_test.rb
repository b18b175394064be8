# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../../bench/support/report"

class ReportTest < Minitest::Test
  Server = Struct.new(:label)
  Case = Struct.new(:name, :title, :servers, :shows, :bars, keyword_init: true)

  OURS = Server.new("chaton")
  LARGE = Server.new("chaton large")
  PEER = Server.new("puma -t 5:5")

  def test_a_bar_compares_the_rounds
    figures = [[OURS, 300, 0], [PEER, 200, 0], [OURS, 100, 1], [PEER, 100, 1], [OURS, 260, 2], [PEER, 200, 2]]
    verdict = verdict(figures, Bench::Bar.at_least(:full_rate, 1.25))
    assert_in_delta 1.3, verdict.figure(verdict.a_case.bars.first)
    assert_predicate verdict, :met?
  end

  def test_a_bar_may_be_about_another_one_of_ours
    figures = [[OURS, 100, 0], [LARGE, 160, 0], [PEER, 100, 0]]
    assert_predicate verdict(figures, Bench::Bar.at_least(:full_rate, 1.5, of: LARGE.label)), :met?
    refute_predicate verdict(figures, Bench::Bar.at_least(:full_rate, 1.5)), :met?
  end

  def test_less_is_better_for_what_is_not_a_rate
    raw = { "slices" => [{ "server" => "chaton", "round" => 0, "gc_us" => 30 },
                         { "server" => "puma -t 5:5", "round" => 0, "gc_us" => 100 },
                         { "server" => "puma -t 1:1", "round" => 0, "gc_us" => 60 }] }
    bar = Bench::Bar.at_most(:gc_us, 0.4)
    servers = [OURS, PEER, Server.new("puma -t 1:1")]
    found = Bench::Verdict.new(Case.new(servers:, bars: [bar]), raw)
    assert_in_delta 0.5, found.figure(bar), 0.001, "the best of the peers counts"
  end

  def test_a_slice_without_a_figure_is_left_out_of_its_median
    raw = { "slices" => [{ "server" => "chaton", "round" => 0, "rps" => 0 },
                         { "server" => "chaton", "round" => 1, "rps" => 10, "p99_ms" => 4.0 }] }
    found = Bench::Verdict.new(Case.new(servers: [OURS], bars: []), raw)
    assert_equal({ "rps" => 5.0, "p99_ms" => 4.0 }, found.own)
  end

  def test_what_was_not_measured_falls_short_and_says_why
    Dir.mktmpdir do |folder|
      Dir.mkdir(File.join(folder, "raw"))
      a_case = Case.new(name: "one", title: "One", servers: [OURS, PEER], shows: [:full_rate],
                        bars: [Bench::Bar.at_least(:full_rate, 1.25)])
      write(folder, "run.json", date: "2026-11-21", command: "bin/bench gc", quick: false, machine: { "cores" => 2 })
      write(folder, "raw/one.json", slices: [{ server: "chaton", round: 0, error: "it has ended:\nlong story" },
                                             { server: "puma -t 5:5", round: 0, full_rate: 800 }])
      report = Bench::Report.new(Bench::Results.of_run(folder), title: "GC", cases: [a_case], notes: "",
                                                                appendix: ->(_) { "the end" })
      assert_includes report.table, "| One |  | puma -t 5:5: highest rate answered in full 800/s |"
      assert_includes report.table, "not measured: chaton (it has ended:) | **falls short** |"
      assert_includes report.to_s, "0 of 1 rows reached. Raw results: raw/*.json.\nthe end"
    end
  end

  private

  def verdict(figures, bar)
    slices = figures.map { |server, rate, round| { "server" => server.label, "full_rate" => rate, "round" => round } }
    Bench::Verdict.new(Case.new(servers: [OURS, LARGE, PEER], bars: [bar]), { "slices" => slices })
  end

  def write(folder, name, content) = File.write(File.join(folder, name), JSON.generate(content))
end
