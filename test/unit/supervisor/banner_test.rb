# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require "chaton/supervisor/banner"

# The line that greets people.
class BannerTest < Minitest::Test
  def text(addresses, pool_size: nil, **given)
    plan = Chaton::Config.load({ config_file: "-", **given }, env: {}, root: "/nonexistent")
    Chaton::Supervisor::Banner.text(plan, addresses, pool_size)
  end

  def test_one_process
    assert_equal "Chaton #{Chaton::VERSION} · threads 1–32 · http://localhost:3000", text(["tcp://0.0.0.0:3000"])
  end

  def test_both_addresses_of_localhost_are_named_once
    assert_match(%r{ · threads 1–32 · http://localhost:3000\z}, text(%w[tcp://127.0.0.1:3000 tcp://[::1]:3000]))
  end

  def test_workers_jobs_and_several_addresses
    assert_equal "Chaton #{Chaton::VERSION} · 2 workers · threads 2–4 · jobs: sqlite storage/chaton_test.db · " \
                 "http://192.0.2.1:80 · unix:///run/app.sock",
                 text(%w[tcp://192.0.2.1:80 unix:///run/app.sock], workers: 2, threads: "2:4", environment: "test",
                                                                   web: true, jobs: true)
    given = { web: true, workers: 1, store: "redis://u:p@h:1/0" }
    found = text(["tcp://[::]:1"], **given)
    assert_match(%r{ · 1 worker · .* · jobs: redis://\*\*\*@h:1/0 \(enqueued only\) · }, found)
  end

  def test_the_pool_of_active_record
    assert_match(/ · threads 1–5 \(ActiveRecord's pool\) · /, text(["tcp://localhost:1"], pool_size: 5))
    assert_match(/ · threads 1–3 · /, text(["tcp://localhost:1"], pool_size: 5, threads: "1:3"))
    assert_match(/ · threads 3 · /, text(["tcp://localhost:1"], pool_size: 5, threads: "3:3"))
  end
end
