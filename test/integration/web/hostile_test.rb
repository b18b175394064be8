# frozen_string_literal: true

require "test_helper"
require "support/corpus"
require "support/raw_client"
require "support/server"

# Malformed and hostile requests, and odd but valid ones, against the real server.
class HostileTest < Minitest::Test
  include ServerTest

  # Answers with how often it was called, and with the request as it was understood.
  APP = <<~RUBY
    calls = 0
    lock = Mutex.new
    run(lambda do |env|
      count = lock.synchronize { calls += 1 }
      seen = env.values_at("REQUEST_METHOD", "PATH_INFO", "SERVER_PROTOCOL", "QUERY_STRING", "HTTP_HOST")
      seen << env["rack.input"].read
      headers = { "content-type" => "text/plain", "x-seen" => seen.map { |text| text.to_s.unpack1("H*") }.join(",") }
      [200, headers, [count.to_s]]
    end)
  RUBY

  # The refused, as the table says; the neighbour shows after each that it is served and that nobody else was.
  def test_refused_requests_never_reach_the_application
    server = boot(rackup: APP, config: "workers 0")
    wrong = with_neighbour(server) do |neighbour|
      Corpus.entries("hostile").each_with_index.filter_map do |entry, index|
        answer = provoke(server.port, entry)
        served = neighbour.get("/").body.to_i
        assert_equal index + 1, served, "#{entry.name}: reached the application"
        verdict(entry, answer)
      end
    end
    assert_empty wrong, wrong.join("\n")
    assert_equal 0, server.stop
  end

  def test_valid_requests_are_parsed
    server = boot(rackup: APP, config: "workers 0")
    wrong = Corpus.entries("valid").filter_map do |entry|
      understood = understand(server.port, entry)
      expected = meaning(entry)
      "#{entry.name}: #{understood} instead of #{expected}" unless understood == expected
    end
    assert_empty wrong, wrong.join("\n")
    assert_equal 0, server.stop
  end

  # The second request of a connection is refused like the first, and the answer before it arrives.
  def test_refusal_behind_a_valid_request
    server = boot(rackup: APP, config: "workers 0")
    first = "GET /first HTTP/1.1\r\nHost: h\r\n\r\n"
    refused = Corpus.entries("hostile").reject { |entry| entry.expected == "cut" || entry.bytes.start_with?("\r") }
    refused.each_slice(10).map(&:first).each do |entry|
      RawClient.open(server.port) do |client|
        client.write(first + entry.bytes)
        assert_equal 200, client.read_response.status, entry.name
        assert_equal entry.expected.to_i, client.read_response.status, entry.name
        assert_predicate client, :closed_by_server?, entry.name
      end
    end
    assert_equal 0, server.stop
  end

  private

  def with_neighbour(server, &block) = HttpClient.open(server.port, &block)

  def provoke(port, entry)
    RawClient.open(port) do |client|
      client.write(entry.bytes)
      client.close_write if entry.expected == "cut"
      client.read_all
    end
  end

  # nil when it is as it should be
  def verdict(entry, answer)
    statuses = answer.scan(%r{^HTTP/1\.1 (\d{3})}).flatten
    return if entry.expected == "cut" && (statuses - %w[400 408]).empty?
    return if statuses == [entry.expected] && answer.match?(/^connection: close\r$/i)
    "#{entry.name}: #{entry.expected} expected, got #{answer[0, 200].inspect}"
  end

  def understand(port, entry)
    RawClient.open(port) do |client|
      answer = client.write(entry.bytes).read_response(head: entry.bytes.start_with?("HEAD"))
      keep = answer.headers["connection"] != "close"
      assert keep || client.closed_by_server?, entry.name
      seen = answer.headers.fetch("x-seen").split(",", -1).map { |hex| [hex].pack("H*") }
      [answer.status, *seen, keep]
    end
  end

  def meaning(entry)
    method, path, version, keep, *more = entry.expected.split
    facts = more.filter_map { |word| word.split("=", 2) if word.include?("=") }.to_h
    facts["host"] ||= entry.bytes[/^host:[ \t]*(.*?)[ \t]*\r$/i, 1]
    texts = [path, *facts.values_at("query", "host", "body")]
    path, query, host, body = texts.map { |text| Corpus.unescape(text.to_s) }
    [200, method, path, "HTTP/#{version}", query, host, body, keep == "keep"]
  end
end
