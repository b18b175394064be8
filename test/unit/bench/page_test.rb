# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../../bench/jobs/suite"
require_relative "../../../bench/web/suite"
require_relative "../../../bench/support/page"

class PageTest < Minitest::Test
  SUITES = { "web" => Bench::Web::Suite, "jobs" => Bench::Jobs::Suite }.freeze
  FLOOR = { "cores" => 2, "system" => "Debian GNU/Linux 12 (bookworm)", "commit" => "aaa",
            "puma" => "puma version 5.6.5", "sidekiq" => "Sidekiq 6.4.1",
            "ruby" => "ruby 3.1.2p20 (2022-04-12) [x86_64-linux-gnu]" }.freeze
  TRIXIE = FLOOR.merge("system" => "Debian GNU/Linux 13 (trixie)", "puma" => "puma version 6.6.0", "yjit" => "no",
                       "sidekiq" => "Sidekiq 7.3.2", "ruby" => "ruby 3.3.8 (2025-04-09) [x86_64-linux-gnu]").freeze
  SOURCE = TRIXIE.merge("puma" => "puma version 8.0.2", "sidekiq" => "not installed", "yjit" => "yes",
                        "ruby" => "ruby 4.0.5 (2026-05-20) [x86_64-linux]").freeze

  def setup
    @root = Dir.mktmpdir
    FileUtils.mkdir_p(File.join(@root, "docs"))
    File.write(File.join(@root, "README.md"), "# Us\n<!-- bench -->\nold\n<!-- end bench -->\nmore\n")
  end

  def teardown = FileUtils.rm_rf(@root)

  def test_the_newest_ruby_comes_first_and_the_oldest_has_a_section_of_its_own
    run_of("2026-01-02-0000-web", FLOOR, "hello-c100" => { "chaton -t 5:5" => 70_000, "puma -t 5:5" => 10_000 })
    run_of("2026-01-01-0000-web", TRIXIE, "hello-c100" => { "chaton -t 5:5" => 60_000, "puma -t 5:5" => 8_000 })
    page = render
    assert_equal ["## Ruby 3.3, Debian 13", "### Web, Ruby 3.3, Debian 13",
                  "## Ruby 3.1, Debian 12", "### Web, Ruby 3.1, Debian 12"],
                 page.scan(/^##+ .*/)
    newest, floor = page.split("## Ruby 3.1, Debian 12")
    assert_includes newest, "| 60,000 | 8,000 (-t 5:5) |"
    assert_includes newest, "[2026-01-01-0000-web](../bench/runs/2026-01-01-0000-web/summary.md) " \
                            "(ruby 3.3.8, yjit no, puma 6.6.0, sidekiq 7.3.2, commit aaa): hello-c100"
    assert_includes floor, "| 70,000 | 10,000 (-t 5:5) |"
    assert_includes page, "- Ruby 3.1, Debian 12: [Web](#web-ruby-31-debian-12)"
    assert_equal 1, page.scan("Each figure is the median").size, "it was measured the same way on all Rubies"
    assert_equal 1, page.scan("<picture>").size
  end

  def test_the_same_ruby_beside_newer_peers_has_a_section_of_its_own
    sid = TRIXIE.merge("system" => "Debian GNU/Linux forky/sid", "puma" => "puma version 8.0.2")
    run_of("2026-01-01-0000-web", sid, "hello-c100" => { "chaton -t 5:5" => 50_000, "puma -t 5:5" => 9_000 })
    run_of("2026-01-02-0000-web", TRIXIE, "hello-c100" => { "chaton -t 5:5" => 60_000, "puma -t 5:5" => 8_000 })
    assert_equal ["## Ruby 3.3, Debian sid", "## Ruby 3.3, Debian 13"], render.scan(/^## .*/)
    assert_includes readme, "\nMeasured on 2 cores with Ruby 3.3.8 and Puma 8.0.2 on Debian sid.\n"
  end

  def test_the_chart_is_of_the_ruby_with_most_of_its_rows
    rates = { "chaton -t 5:5" => 60_000, "puma -t 5:5" => 8_000 }
    run_of("2026-01-01-0000-web", SOURCE, "hello-c100" => rates)
    run_of("2026-01-01-0001-web", TRIXIE, "hello-c100" => rates, "hello-c10" => rates)
    newest, older = render.split("## Ruby 3.3, Debian 13")
    assert_includes newest, "## Ruby 4.0 with YJIT, Debian 13\n"
    refute_includes newest, "<picture>"
    assert_includes older, "<picture>"
  end

  def test_a_peer_that_only_the_other_ruby_has_is_shown
    run_of("2026-01-01-0000-web", TRIXIE, "rails-index-c10" => { "chaton -t 99:99" => 900, "puma -t 99:99" => 450 })
    assert_includes render, "| 900 | 450 (-t 99:99) |"
  end

  # As of a Ruby without the gems that Rails needs, whose own version stands in the message.
  def test_what_could_not_be_loaded_has_no_version
    machine = SOURCE.merge("rails" => "/opt/ruby-4.0.5/rubygems.rb:1: Could not find 'cgi' (Gem::MissingSpecError)")
    run_of("2026-01-01-0000-web", machine, "hello-c100" => { "chaton -t 5:5" => 9, "puma -t 5:5" => 8 })
    assert_includes render, "(ruby 4.0.5, yjit yes, puma 8.0.2, commit aaa): hello-c100"
    missing = "ruby -e 'raise Gem::MissingSpecError.new(%q(cgi), Gem::Requirement.default)'"
    assert_equal "not installed", Bench::Machine.first_line(missing)
  end

  def test_the_readme_has_the_figures_of_the_newest_ruby_and_says_which
    run_of("2026-01-01-0000-web", TRIXIE, "hello-c100" => { "chaton -t 5:5" => 60_000, "puma -t 5:5" => 8_000 })
    run_of("2026-01-02-0000-web", FLOOR, "hello-c100" => { "chaton -t 5:5" => 70_000, "puma -t 5:5" => 10_000 })
    run_of("2026-01-02-0000-jobs", FLOOR, "drain-100000" => { "chaton -t 100:100" => 100, "sidekiq -c 100" => 4 })
    render
    assert_includes readme, "| **60,000 requests/s** | 8,000 requests/s (puma -t 5:5) | 7.5× |"
    assert_includes readme, "| **100 jobs/s** | 4 jobs/s (sidekiq -c 100) | 25× |"
    assert_includes readme, <<~TEXT

      Measured on 2 cores: web with Ruby 3.3.8 and Puma 6.6.0 on Debian 13; jobs with Ruby 3.1.2 and Sidekiq 6.4.1 on Debian
      12.
      <!-- end bench -->
      more
    TEXT
  end

  def test_the_readme_has_the_oldest_rubys_figures_where_there_are_no_others
    run_of("2026-01-02-0000-web", FLOOR, "hello-c100" => { "chaton -t 5:5" => 70_000, "puma -t 5:5" => 10_000 })
    render
    assert_includes readme, "\nMeasured on 2 cores with Ruby 3.1.2 and Puma 5.6.5 on Debian 12.\n"
  end

  def test_a_quick_run_is_no_headline_beside_a_full_one
    run_of("2026-01-01-0000-web", TRIXIE, "hello-c100" => { "chaton -t 5:5" => 60_000, "puma -t 5:5" => 8_000 })
    faster = { "chaton -t 5:5" => 90_000, "puma -t 5:5" => 8_000 }
    run_of("2026-01-02-0000-web", SOURCE, "hello-c100" => faster, quick: true)
    render
    assert_includes readme, "Measured on 2 cores with Ruby 3.3.8 and Puma 6.6.0 on Debian 13."
  end

  private

  def render
    Bench::Page.new(SUITES, runs: File.join(@root, "runs"), root: @root).write
    File.read(File.join(@root, "docs/BENCHMARKS.md"))
  end

  def readme = File.read(File.join(@root, "README.md"))

  def run_of(name, machine, quick: false, **cases)
    folder = File.join(@root, "runs", name)
    FileUtils.mkdir_p(File.join(folder, "raw"))
    write(folder, "run.json", date: name[0, 10], command: "bin/bench", quick:, machine:)
    cases.each do |a_case, rates|
      slices = rates.map do |server, rate|
        { server:, round: 0, rps: rate, rate:, p99_ms: 1.0, cpu_us: 10.0, waits: 0.1, errors: 0,
          worker_cpu_us: 7.0, redis_cpu_us: 3.0, pss_mb: 20.0, drain_ms: 10.0 }
      end
      write(folder, "raw/#{a_case}.json", slices:)
    end
  end

  def write(folder, name, content) = File.write(File.join(folder, name), JSON.generate(content))
end
