# frozen_string_literal: true

require "test_helper"
require "support/server"

# The size of eden is found while requests run, told, and kept for the next start.
class EdenTest < Minitest::Test
  include ServerTest

  THREADS = 8
  # Requests parse large documents and hold them while they wait, so that there is much to mark.
  PAYLOADS = <<~RUBY
    require "json"
    TEXT = JSON.generate(Array.new(12_000) { |n| { "id" => n, "name" => "customer \#{n}", "prices" => [n, n + 1, n + 2] } })
    run(lambda do |_|
      rows = JSON.parse(TEXT)
      sleep 0.02
      [200, {}, [JSON.generate(rows.map { |row| row.merge("sum" => row["prices"].sum) }).size.to_s]]
    end)
  RUBY

  def test_eden_grows_with_the_work_and_the_next_start_begins_with_it
    server = boot(rackup: PAYLOADS, config: "workers 0\nthreads #{THREADS}..#{THREADS}")
    assert_equal 0, server.stop
    again(server)
    before = eden(server)
    assert_equal "start", before["eden_reason"]
    found = under_load(server) do
      server.eventually("eden grows") { (now = eden(server))["eden_bytes"] >= 2 * before["eden_bytes"] && now }
    end
    assert_includes %w[growing steady], found["eden_reason"]
    assert_operator found["gc_share_ppm"], :>, 0
    kept = under_load(server) do
      server.eventually("it settles") { (now = eden(server))["eden_reason"] == "steady" && now["eden_bytes"] }
    end
    assert_equal 0, server.stop
    again(server)
    assert_operator eden(server)["eden_bytes"], :>=, kept / 2
    assert_equal 0, server.stop
  end

  def test_a_configured_eden_stays_as_it_is
    server = boot(rackup: PAYLOADS, config: "workers 0\nmemory { eden '8M' }")
    before = eden(server)["gc_minor_total"]
    under_load(server) { server.eventually("collections") { eden(server)["gc_minor_total"] > before + 20 } }
    assert_equal [8 << 20, "configured"], eden(server).values_at("eden_bytes", "eden_reason")
    assert_equal 0, server.stop
  end

  private

  def again(server)
    server.start
    server.ready
  end

  def eden(server) = server.status.fetch("workload").fetch("memory")

  def under_load(server)
    done = false
    clients = Array.new(THREADS) { Thread.new { HttpClient.open(server.port) { |client| client.get("/") until done } } }
    yield
  ensure
    done = true
    clients.each(&:join)
  end
end
