# frozen_string_literal: true

require "test_helper"
require "chaton/config"
require "chaton/telemetry/log"
require "chaton/web/env_template"
require "chaton/web/warm_up"
require "stringio"
require_relative "../config/config_case"

# Which requests the blocks make, and how they end.
class WarmUpTest < ConfigCase
  def setup
    super
    @envs = []
    @app = lambda { |env|
      @envs << env
      [200, {}, ["hello"]]
    }
  end

  def warm_up(config, app: @app)
    plan = self.plan(config)
    template = Chaton::Web::EnvTemplate.build(plan, plan.binds.first, 9292)
    @output = StringIO.new
    log = Chaton::Telemetry::Log.new(io: @output)
    Chaton::Web::WarmUp.new(plan, app: app, template: template, log: log).call
  end

  def test_without_blocks_nothing_happens
    warm_up("workers 1")
    assert_empty @envs
    assert_empty @output.string
  end

  def test_a_request_has_the_env_of_a_real_one
    warm_up("warm_up { |client| client.get '/posts?page=2', headers: { 'Host' => 'example.com', 'X-A' => 'b' } }")
    env = @envs.fetch(0)
    assert_equal ["GET", "/posts", "page=2", "example.com", "b"],
                 env.values_at("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_HOST", "HTTP_X_A")
    assert_equal [false, nil, ""], [env["rack.hijack?"], env["rack.hijack"], env["rack.input"].read]
    assert_match(/warmed up  requests=1 failed=0/, @output.string)
  end

  def test_a_request_may_have_a_body
    warm_up(<<~RUBY)
      warm_up { |client| client.post "/", body: "a=ü", headers: { "Content-Type" => "text/plain" } }
    RUBY
    env = @envs.fetch(0)
    assert_equal ["POST", "4", "text/plain", "a=ü".b],
                 [*env.values_at("REQUEST_METHOD", "CONTENT_LENGTH", "CONTENT_TYPE"), env["rack.input"].read]
  end

  def test_the_real_rack_lint_accepts_it
    require "rack"
    require "rack/lint"
    # Rack 2.2's lint does not load it, and takes that for a wrong authority.
    require "uri"
    app = Rack::Lint.new(->(_env) { [200, { "content-type" => "text/plain" }, ["hello"]] })
    warm_up("warm_up { |client| client.get '/a?b=c'; client.post '/', body: 'x' }", app: app)
    assert_match(/requests=2 failed=0/, @output.string)
  end

  def test_bodies_are_read_and_closed_and_callbacks_are_called
    seen = []
    body = Object.new
    body.define_singleton_method(:each) { |&block| block.call(seen << :each) }
    body.define_singleton_method(:close) { seen << :close }
    app = lambda { |env|
      env["rack.after_reply"] << -> { seen << :after_reply }
      env["rack.response_finished"] << ->(_env, status, _headers, error) { seen << [status, error] }
      [200, {}, body]
    }
    warm_up("warm_up { |client| client.get '/' }", app: app)
    assert_equal [:each, :close, :after_reply, [200, nil]], seen
  end

  def test_failures_are_logged_and_the_rest_goes_on
    app = lambda { |env|
      raise "broken" if env["PATH_INFO"] == "/raises"

      exit if env["PATH_INFO"] == "/exits"
      [503, {}, []]
    }
    warm_up(<<~RUBY, app: app)
      warm_up { |client| client.get("/raises") || client.get("/exits") || client.get("/busy") }
      warm_up { |_client| raise "a broken block" }
    RUBY
    assert_match(%r{a warm_up request failed  request="GET /raises" error=RuntimeError reason=broken}, @output.string)
    assert_match(%r{a warm_up request failed  request="GET /exits" error=SystemExit}, @output.string)
    assert_match(%r{a warm_up request was answered with 503  request="GET /busy"}, @output.string)
    assert_match(/a warm_up block failed  hook=\S+:2 error=RuntimeError reason="a broken block"/, @output.string)
    assert_match(/warmed up  requests=3 failed=3 statuses="503: 1" ms=/, @output.string)
  end

  def test_time_is_bounded_even_if_the_application_rescues_errors
    app = lambda { |_env|
      begin
        sleep
      rescue StandardError
        retry
      end
    }
    warm_up("boot_timeout_s 1\nwarm_up { |client| 2.times { client.get '/' } }", app: app)
    assert_match(/ended early.*: a third of boot_timeout_s \(0\.33 s\) is over/, @output.string)
  end

  def test_the_number_of_requests_is_bounded
    warm_up("constants_for_tests warm_up_requests_max: 3\nwarm_up { |client| loop { client.get '/' } }")
    assert_equal 3, @envs.size
    assert_match(/ended early.*: more than 3 requests in one process/, @output.string)
  end
end
