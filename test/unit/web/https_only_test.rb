# frozen_string_literal: true

require "test_helper"
require "chaton/web/https_only"

class HttpsOnlyTest < Minitest::Test
  def test_plain_http_is_redirected
    [["GET", "/a", "q=1", 301, "https://example.org/a?q=1"], ["HEAD", "/", "", 301, "https://example.org/"],
     ["POST", "/a", "", 308, "https://example.org/a"]].each do |method, path, query, status, location|
      answer = call({ "REQUEST_METHOD" => method, "PATH_INFO" => path, "QUERY_STRING" => query })
      assert_equal [status, location], [answer[0], answer[1]["location"]]
    end
    assert_equal "https://[::1]:8443/", call({ "HTTP_HOST" => "[::1]:8080" }, port: 8443)[1]["location"]
  end

  def test_a_redirect_leads_to_the_host_of_the_request_or_that_of_a_trusted_proxy
    { "evil.test" => "example.org", nil => "example.org" }.each do |host, expected|
      assert_equal "https://#{expected}/", call({ "HTTP_X_FORWARDED_HOST" => host })[1]["location"]
    end
    { "a.test" => "a.test", "b.test:80, a.test:8080" => "a.test", "[::1]:80" => "[::1]", "" => "example.org",
      "," => "example.org", "a.test/x@" => "example.org", nil => "example.org" }.each do |host, expected|
      location = call({ "HTTP_X_FORWARDED_HOST" => host }, proxied: true)[1]["location"]
      assert_equal "https://#{expected}/", location, host.inspect
    end
    assert_equal "https://[::1]/", call({ "HTTP_HOST" => nil, "SERVER_NAME" => "::1" })[1]["location"]
    every = { "REQUEST_METHOD" => "OPTIONS", "PATH_INFO" => "*" }
    assert_equal "https://example.org/", call(every)[1]["location"]
  end

  def test_https_reaches_the_application_which_may_set_its_own_policy
    secure = { "HTTP_X_FORWARDED_PROTO" => "https" }
    assert_equal [200, { "x-own" => "1" }, ["app"]], call(secure)
    assert_equal [200, { "x-own" => "1", "strict-transport-security" => "max-age=60" }, ["app"]],
                 call({ "HTTPS" => "on" }, hsts: "max-age=60")
    own = { "Strict-Transport-Security" => "max-age=1" }
    assert_equal own, call({ "rack.url_scheme" => "https" }, own, hsts: "max-age=60")[1]
  end

  def test_some_paths_are_answered_over_plain_http
    except = ["/up", "/.well-known/*"]
    assert_equal [200, 200, 301, 301],
                 ["/up", "/.well-known/acme", "/up/", "/upper"]
                   .map { |path| call({ "PATH_INFO" => path }, except: except).first }
    assert_equal({ "x-own" => "1" }, call({ "PATH_INFO" => "/up" }, except: except, hsts: "max-age=60")[1])
  end

  private

  def call(env, headers = { "x-own" => "1" }, **given)
    plain = { "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/", "QUERY_STRING" => "",
              "rack.url_scheme" => "http", "HTTP_HOST" => "example.org", "SERVER_NAME" => "h", "SERVER_PORT" => "80" }
    Chaton::Web::HttpsOnly.new(->(_env) { [200, headers, ["app"]] }, **given).call(plain.merge(env))
  end
end
