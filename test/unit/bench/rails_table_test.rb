# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../../bench/rails/suite"
require_relative "../../../bench/rails/table"
require_relative "../../../bench/support/page"

class RailsTableTest < Minitest::Test
  VERSIONS = { "Ruby" => "3.4.1", "Rails" => "8.1.3" }.freeze
  MACHINE = { "cores" => 2, "system" => "Debian GNU/Linux 13 (trixie)", "rails" => "rails 9.9.9",
              "puma" => "puma 9.9.9", "ruby" => "ruby 3.4.1 (2025-04-09) [x86_64-linux-gnu]" }.freeze

  def test_a_table_adds_up_what_failed_and_names_what_was_loaded
    Dir.mktmpdir do |root|
      write(root, "README.md", "# Us\n<!-- rails -->\nold\n<!-- end rails -->\nmore\n")
      write(root, "runs/2026-01-01-0000-rails/run.json",
            JSON.generate(date: "2026-01-01", command: "bin/bench rails", quick: false, machine: MACHINE))
      write(root, "runs/2026-01-01-0000-rails/raw/stack.json", JSON.generate(case: "stack", slices:))
      Bench::Page.new({ "rails" => Bench::Rails::Suite }, runs: "#{root}/runs", root:).write
      assert_equal <<~TEXT, File.read("#{root}/README.md")
        # Us
        <!-- rails -->
        | Rails 8.1.3 on Ruby 3.4.1, 2 web workers and 1 for jobs | Chaton | Puma 7.1.0 and Sidekiq 8.0.9 |
        |---|---:|---:|
        | requests failed in three deploys | 1 of 300 | 16 of 200 |
        | jobs lost by a `kill -9` | 0 of 300 | 15 of 200 |
        | p99 of a page beside four jobs that compute | 30 ms | 150 ms |
        | memory of all processes | 110 MB | 205 MB |
        <!-- end rails -->
        more
      TEXT
      assert_includes File.read("#{root}/docs/BENCHMARKS.md"), "failed requests 1 (≤ 0); lost jobs 0 (≤ 0); p99 0.175×"
    end
  end

  def test_a_round_that_was_not_measured_does_not_count
    failed = { "server" => "puma and sidekiq", "error" => "did not start" }
    table = Bench::Rails::Table.new("slices" => [*slices, failed])
    assert_includes table.to_s, "chaton: supervisor 20 MB, worker web 90 MB"
    assert_match(/^jobs lost by a `kill -9` +0 of 300 +15 of 200$/, table.to_s)
  end

  private

  def slices
    chaton = [[0, 20], [1, 30], [0, 40]].map do |failed, p99|
      slice("chaton", failed, 0, p99, 110.2, { "supervisor" => 20.1, "worker web" => 90.1 }, { "Sidekiq" => "8.0.9" })
    end
    peer = [[6, 100], [10, 200]].map do |failed, p99|
      slice("puma and sidekiq", failed, failed == 6 ? 5 : 10, p99, 204.6, { "puma" => 204.6 },
            { "Puma" => "7.1.0", "Sidekiq" => "8.0.9" })
    end
    [*chaton, *peer].each_with_index.map { |one, round| { **one, "round" => round % 3 } }
  end

  def slice(server, failed, lost, p99_ms, pss_mb, processes, versions)
    { "server" => server, "failed" => failed, "requests" => 100, "lost" => lost, "jobs" => 100, "p99_ms" => p99_ms,
      "pss_mb" => pss_mb, "processes" => processes, "versions" => { **VERSIONS, **versions } }
  end

  def write(root, name, text)
    FileUtils.mkdir_p(File.dirname(File.join(root, name)))
    File.write(File.join(root, name), text)
  end
end
