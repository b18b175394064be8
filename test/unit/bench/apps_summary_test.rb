# frozen_string_literal: true

require "test_helper"
require "json"
require "tmpdir"
require_relative "../../../bench/apps/suite"
require_relative "../../../bench/support/results"

# The table of bin/apps.
class AppsSummaryTest < Minitest::Test
  FACTS = { "date" => "2026-01-01 00:00", "command" => "bin/bench apps", "quick" => false,
            "machine" => { "ruby" => "ruby 3.1.2", "system" => "Debian GNU/Linux 12 (bookworm)" } }.freeze
  CHATON = { rps: 30.0, p99_ms: 200.0, pss_mb: 150.0, errors: 0 }.freeze
  PUMA = { rps: 20.0, p99_ms: 400.0, pss_mb: 150.0, errors: 0 }.freeze

  def test_rows_of_each_kind_and_the_median_of_those_under_load
    table = table_of("redmine-answers" => { "puma -t 5:5" => { responses: 300, different: 2 },
                                            "chaton" => { responses: 300, different: 0 } },
                     "redmine-list-c4" => { "chaton" => CHATON, "puma -t 5:5" => PUMA,
                                            "puma -t 3:3" => PUMA.merge(rps: 10.0, p99_ms: 300.0) })
    assert_includes table, "| responses 300, different 0 | puma -t 5:5: responses 300, different 2 | " \
                           "different of chaton 0 (≤ 0) | reached |"
    assert_includes table, "requests/s 1.5× (≥ 1×); p99 0.5× (≤ 0.75×); memory 1× (≤ 1.05×) | reached |"
    assert_includes table, "| median of the 1 cells under load |  |  | requests/s 1.5× (≥ 1.15×) | reached |"
  end

  def test_a_difference_and_a_failed_request_fall_short
    table = table_of("redmine-answers" => { "chaton" => { responses: 300, different: 1 } },
                     "redmine-list-c4" => { "chaton" => CHATON.merge(errors: 1), "puma -t 5:5" => PUMA })
    assert_equal 2, table.scan("**falls short**").size
  end

  private

  def table_of(cases)
    Dir.mktmpdir do |runs|
      raw = File.join(runs, "2026-01-01-0000-apps/raw")
      FileUtils.mkdir_p(raw)
      File.write(File.join(raw, "../run.json"), JSON.generate(FACTS))
      cases.each do |name, servers|
        slices = servers.map { |server, figures| { server:, round: 0, **figures } }
        File.write(File.join(raw, "#{name}.json"), JSON.generate(case: name, slices:))
      end
      Bench::Apps::Suite.summary(Bench::Results.of_run(File.dirname(raw))).table
    end
  end
end
