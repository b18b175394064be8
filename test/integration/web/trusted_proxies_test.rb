# frozen_string_literal: true

require "test_helper"
require "json"
require "support/otlp_collector"
require "support/raw_client"
require "support/server"

# The client behind proxies that are believed, and what others send.
class TrustedProxiesTest < Minitest::Test
  include ServerTest

  KEYS = %w[REMOTE_ADDR rack.url_scheme HTTPS SERVER_PORT HTTP_FORWARDED HTTP_X_FORWARDED_FOR HTTP_X_FORWARDED_PROTO
            HTTP_X_FORWARDED_HOST].freeze
  APP = <<~RUBY.freeze
    require "json"
    require "rack"
    run lambda { |env|
      request = Rack::Request.new(env)
      answer = env.slice(*#{KEYS}).merge("ip" => request.ip, "scheme" => request.scheme)
      [200, { "content-type" => "application/json" }, [JSON.generate(answer)]]
    }
  RUBY
  HEADERS = { "X-Forwarded-For" => "9.9.9.9, 203.0.113.7, 10.0.0.2", "X-Forwarded-Proto" => "https",
              "Forwarded" => "for=9.9.9.9;proto=http" }.freeze

  def answer(server, headers = HEADERS)
    lines = { "Host" => "site.example", "Connection" => "close", **headers }.map { |pair| pair.join(": ") }
    RawClient.exchange(server.port, "GET / HTTP/1.1\r\n#{lines.join("\r\n")}\r\n\r\n")
  end

  def ask(...) = JSON.parse(answer(...).split("\r\n\r\n", 2).last)

  def test_a_trusted_proxy_names_the_client
    server = boot(rackup: APP, config: "workers 0\nweb { trusted_proxies :private\n access_log :json }")
    answer = ask(server)
    assert_equal ["203.0.113.7", "https", "on", "443"], answer.values_at(*KEYS.first(4))
    assert_equal HEADERS["X-Forwarded-For"], answer["HTTP_X_FORWARDED_FOR"]
    refute_includes answer, "HTTP_FORWARDED"
    assert_equal %w[203.0.113.7 https], answer.values_at("ip", "scheme"), "Rack agrees"
    server.wait_line(/"remote":"203\.0\.113\.7"/)
    assert_equal(["127.0.0.1", "http", nil], ask(server, {}).values_at(*KEYS.first(3)))
    assert_equal 0, server.stop
  end

  def test_so_it_does_over_http_2
    server = boot(rackup: APP, config: "workers 0\nweb { trusted_proxies :private\n access_log :json }")
    headers = HEADERS.flat_map { |name, value| ["-H", "#{name}: #{value}"] }
    text = IO.popen(["nghttp", "--timeout=60", *headers, "http://127.0.0.1:#{server.port}/"], "rb", &:read)
    answer = JSON.parse(text)
    assert_equal %w[203.0.113.7 https on], answer.values_at(*KEYS.first(3))
    refute_includes answer, "HTTP_FORWARDED"
    server.wait_line(%r{"remote":"203\.0\.113\.7".*"version":"HTTP/2})
    assert_equal 0, server.stop
  end

  def test_spans_name_the_client_and_the_proxy
    collector = OtlpCollector.new
    traces = "traces { endpoint #{collector.url.dump}; constants_for_tests traces_interval_s: 0.02 }"
    server = boot(rackup: APP, config: "workers 0\nweb { trusted_proxies :private }\n#{traces}")
    ask(server)
    span = collector.wait("the request's span") { |spans| !spans.empty? }.first
    assert_equal ["203.0.113.7", "127.0.0.1", "https"],
                 span.attributes.values_at("client.address", "network.peer.address", "url.scheme")
    assert_equal 0, server.stop
  ensure
    collector&.close
  end

  def test_a_client_joins_no_trace_and_is_linked
    collector = OtlpCollector.new
    traces = "traces { endpoint #{collector.url.dump}; follow_parent false }\n" \
             "constants_for_tests traces_interval_s: 0.02"
    server = boot(rackup: APP, config: "workers 0\nweb { trusted_proxies '10.0.0.0/8' }\n#{traces}")
    ask(server, { "traceparent" => "00-#{"a" * 32}-#{"b" * 16}-00", "tracestate" => "c=1" })
    span = collector.wait("the request's span") { |spans| !spans.empty? }.first
    refute_equal "a" * 32, span.trace_id
    assert_equal ["", "", ["b" * 16]], [span.parent_id, span.trace_state, span.links]
    assert_equal 0, server.stop
  ensure
    collector&.close
  end

  def test_nobody_else_is_believed
    web = "web { trusted_proxies '10.0.0.0/8'\n https_only true\n https_port 8443 }"
    server = boot(rackup: APP, config: "workers 0\n#{web}")
    assert_match(%r{\AHTTP/1.1 301 .*^location: https://site.example:8443/\r$}im, answer(server))
    server.stop
    server = boot(rackup: APP, config: "workers 0\nweb { trusted_proxies '10.0.0.0/8' }")
    answer = ask(server, HEADERS.merge("X_Forwarded_Host" => "evil.example"))
    assert_equal({ "REMOTE_ADDR" => "127.0.0.1", "rack.url_scheme" => "http", "SERVER_PORT" => "80",
                   "ip" => "127.0.0.1", "scheme" => "http" }, answer)
    assert_equal 0, server.stop
  end

  def test_without_the_setting_the_headers_are_the_applications_matter
    server = boot(rackup: APP, config: "workers 0")
    answer = ask(server)
    assert_equal ["127.0.0.1", "http", nil, "80"], answer.values_at(*KEYS.first(4))
    assert_equal HEADERS.values_at("Forwarded", "X-Forwarded-For", "X-Forwarded-Proto"),
                 answer.values_at("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO")
    assert_equal 0, server.stop
  end
end
