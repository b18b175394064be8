# frozen_string_literal: true

require "test_helper"
require "support/jobs_server"
require "support/recording_endpoint"
require "support/server"
require "support/tls_files"

# Requests, jobs and errors of a Rails application arrive where its instrument sends them. Their source is that of
# CHATON_INSTRUMENTS.
class InstrumentsTest < Minitest::Test
  include ServerTest

  APPLICATION = <<~RUBY
    require "rails"
    require "action_controller/railtie"
    require "active_job/railtie"
    require "chaton"
    ENDPOINT = "127.0.0.1:\#{ENV.fetch("ENDPOINT_PORT")}"
    %s
    class Small < Rails::Application
      config.root = File.expand_path("..", __dir__)
      config.eager_load = true
      config.secret_key_base = "0" * 64
      config.hosts.clear
      config.consider_all_requests_local = false
      config.logger = ActiveSupport::Logger.new($stdout, level: :warn)
      config.active_job.queue_adapter = :chaton
      # Rails 8.0 warns without it.
      config.active_support.to_time_preserves_timezone = :zone if Rails.version.start_with?("8.0.")
    end
    class FineJob < ActiveJob::Base
      def perform = nil
    end
    class FailJob < ActiveJob::Base
      chaton_options retry: 0
      def perform = raise("job-boom")
    end
    class HomeController < ActionController::Base
      def show
        [FineJob, FailJob].each(&:perform_later)
        render plain: "shown"
      end

      def fail = raise("web-boom")
    end
    Small.initialize!
    Rails.application.routes.draw do
      get "/show" => "home#show"
      get "/fail" => "home#fail"
    end
  RUBY
  # A line of the log that an instrument, or Rails because of it, complains in. The two errors are those of the test,
  # and three instruments load the sidekiq gem where it is installed.
  COMPLAINT = /WARN|ERROR|DEPRECAT|warning:/
  EXPECTED = %r{boom|FailJob|Completed 500|sidekiq gem is loaded|meta key|\A *(?:[\w.]*/|\S+\.rb:\d+|\s*$)|left threads}

  def time_limit_s = 180

  def test_sentry
    boot_with(%w[sentry-ruby/sentry-ruby/lib sentry-ruby/sentry-rails/lib], <<~RUBY)
      require "sentry-rails"
      ActiveSupport.on_load(:before_initialize) do
        Sentry.init { |config| config.dsn = "http://key@\#{ENDPOINT}/1"; config.traces_sample_rate = 1.0 }
      end
    RUBY
    arrives(/"transaction":"HomeController#show"/, /"transaction":"FineJob"/, /"value":"web-boom/, /"value":"job-boom/)
    assert_equal [1, 1], [/"value":"web-boom/, /"value":"job-boom/].map { |error| @endpoint.count(error) }
  end

  def test_honeybadger
    boot_with(%w[honeybadger/lib], <<~RUBY)
      ENV.update("HONEYBADGER_API_KEY" => "key", "HONEYBADGER_CONNECTION_SECURE" => "false",
                 "HONEYBADGER_CONNECTION_HOST" => "127.0.0.1", "HONEYBADGER_CONNECTION_PORT" => ENDPOINT[/\\d+\\z/],
                 "HONEYBADGER_INSIGHTS_ENABLED" => "true", "HONEYBADGER_EVENTS_TIMEOUT" => "500",
                 "HONEYBADGER_LOGGING_LEVEL" => "WARN", "HONEYBADGER_SKIPPED_PLUGINS" => "sidekiq")
      require "honeybadger"
    RUBY
    arrives(%r{/events (?=.*process_action\.action_controller).*HomeController}m,
            %r{/events (?=.*perform\.active_job).*FineJob}m,
            %r{/notices.*web-boom}, %r{/notices.*job-boom})
  end

  def test_judoscale
    boot_with(%w[judoscale/judoscale-ruby/lib judoscale/judoscale-rails/lib], <<~RUBY, error: nil)
      require "judoscale-rails"
      Judoscale.configure do |config|
        config.api_base_url = "http://\#{ENDPOINT}"
        config.report_interval_seconds = 1
        config.start_reporter_after_initialize = false
      end
    RUBY
    # Times of the queue and of the application, in milliseconds.
    arrives(/"qt"/, /"at"/)
  end

  def test_opentelemetry
    parts = %w[api sdk common registry semantic_conventions exporter/zipkin].map { |name| "opentelemetry/#{name}/lib" }
    contrib = %w[base rack active_support action_pack active_job]
    boot_with([*parts, *contrib.map { |name| "opentelemetry-contrib/instrumentation/#{name}/lib" }], <<~RUBY)
      %w[sdk exporter/zipkin instrumentation/base instrumentation/rack instrumentation/active_support
         instrumentation/action_pack instrumentation/active_job].each { |name| require "opentelemetry/\#{name}" }
      OpenTelemetry::SDK.configure do |config|
        exporter = OpenTelemetry::Exporter::Zipkin::Exporter.new(endpoint: "http://\#{ENDPOINT}/api/v2/spans")
        config.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(exporter))
        %w[Rack ActionPack ActiveJob].each { |name| config.use("OpenTelemetry::Instrumentation::\#{name}") }
      end
    RUBY
    arrives(%r{"name":"GET /show}, /FineJob/, /web-boom/, /job-boom/)
  end

  def test_new_relic
    tls = TlsFiles.new(File.join(Dir.mktmpdir, "tls"))
    tls.write("endpoint")
    context = OpenSSL::SSL::SSLContext.new
    context.add_certificate(OpenSSL::X509::Certificate.new(File.read(tls.path("endpoint.pem"))),
                            OpenSSL::PKey.read(File.read(tls.path("endpoint.key"))))
    limits = %w[analytic error span custom log].to_h { |name| ["#{name}_event_data", 100] }
    answers = { "preconnect" => { redirect_host: "localhost" }, "get_agent_commands" => [],
                "connect" => { agent_run_id: "1", collect_errors: true, collect_error_events: true,
                               collect_analytics_events: true, data_report_period: 1,
                               event_harvest_config: { report_period_ms: 1_000, harvest_limits: limits } } }
    endpoint = RecordingEndpoint.new(tls: context) { |line| { return_value: answers[line[/method=(\w+)/, 1]] } }
    boot_with(%w[newrelic_rpm/lib], <<~RUBY, endpoint: endpoint, path: tls.path("ca.pem"))
      ENV.update("NEW_RELIC_LICENSE_KEY" => "0" * 40, "NEW_RELIC_HOST" => "localhost",
                 "NEW_RELIC_PORT" => ENDPOINT[/\\d+\\z/], "NEW_RELIC_LOG" => "stdout",
                 "NEW_RELIC_CA_BUNDLE_PATH" => ENV.fetch("ENDPOINT_PATH"),
                 "NEW_RELIC_LOG_LEVEL" => "warn", "NEW_RELIC_APP_NAME" => "small", "NEW_RELIC_DISPATCHER" => "puma")
      File.write("config/newrelic.yml", "production: {}")
      require "newrelic_rpm"
    RUBY
    arrives(%r{method=analytic_event_data.*Controller/home/show}, /method=analytic_event_data.*ActiveJob.*FineJob/,
            /method=error_event_data.*web-boom/, /method=error_event_data.*job-boom/)
  end

  # Its native gem, which it downloads when it is installed, would send this.
  APPSIGNAL_NATIVE = <<~RUBY
    require "json"
    require "net/http"
    class Appsignal::Extension
      class Told
        def initialize(namespace) = @said = [namespace]
        def finish(_) = true
        def complete = Net::HTTP.post(URI("http://\#{ENDPOINT}/appsignal"), JSON.generate(@said))
        def set_action(name) = @said << name
        def set_error(name, message, _) = @said << message
        def method_missing(...) = nil
        def respond_to_missing?(...) = true
      end
      class << self
        def start_transaction(_id, namespace, _) = Told.new(namespace)
        def data_map_new = MockData.new
        def data_array_new = MockData.new
        def method_missing(...) = nil
        def respond_to_missing?(...) = true
      end
    end
  RUBY

  def test_appsignal_by_its_hooks
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "appsignal_extension.rb"), APPSIGNAL_NATIVE)
      boot_with(%w[appsignal/lib], <<~RUBY, path: folder)
        $LOAD_PATH.unshift(ENV.fetch("ENDPOINT_PATH"))
        ENV.update("APPSIGNAL_PUSH_API_KEY" => "key", "APPSIGNAL_ACTIVE" => "true", "APPSIGNAL_APP_NAME" => "small",
                   "APPSIGNAL_LOG" => "stdout")
        require "appsignal"
      RUBY
      arrives(/http_request.*HomeController#show/, /background_job.*FineJob#perform/,
              /http_request.*web-boom.*HomeController#fail/, /background_job.*FailJob#perform.*job-boom/)
    end
  end

  # The class that it has for its own tests stands for its native code. Without the probe it leaves jobs out.
  def test_skylight_by_its_hooks
    boot_with(%w[skylight/lib], <<~RUBY)
      ENV.update("SKYLIGHT_ENABLED" => "true", "SKYLIGHT_AUTHENTICATION" => "key")
      require "json"
      require "net/http"
      require "skylight"
      require "skylight/test"
      Skylight.probe(*(Skylight::Railtie.config.skylight.probes += %w[active_job]))
      def Skylight.native? = true
      def (Skylight::Trace).native_new(*) = allocate
      Skylight.extend(Skylight::Test::Mocking)
      Skylight.mock!(enable_source_locations: false) do |trace|
        said = [trace.endpoint, trace.mock_spans.flat_map { |span| span.values_at(:cat, :exception) }]
        Net::HTTP.post(URI("http://\#{ENDPOINT}/skylight"), JSON.generate(said))
      end
    RUBY
    arrives(/HomeController#show/, /HomeController#fail<sk-segment>error/,
            /FineJob<sk-segment>default/, /FailJob<sk-segment>error/)
  end

  private

  # @param folders [Array<String>] of the instrument's source, below CHATON_INSTRUMENTS
  # @param setup [String] Ruby: as an initializer has it
  def boot_with(folders, setup, endpoint: RecordingEndpoint.new, path: nil, error: "/fail")
    @endpoint = endpoint
    libs = folders.map { |folder| File.join(ENV.fetch("CHATON_INSTRUMENTS"), folder) }
    libs.each { |lib| assert Dir.exist?(lib), lib }
    @server = Server.new(rackup: "require_relative \"config/application\"\nrun Rails.application", config: <<~RUBY,
      workers web: 1, jobs: 1
      threads 1..4
      jobs { store "sqlite://jobs.db" }
    RUBY
                         env: { "RUBYLIB" => libs.join(":"), "RAILS_ENV" => "production",
                                "ENDPOINT_PORT" => endpoint.port.to_s, "ENDPOINT_PATH" => path })
    @server.write("config/application.rb", format(APPLICATION, setup))
    @server.write("config/environment.rb", "require_relative \"application\"\n")
    (@servers ||= []) << @server
    @server.start
    @server.wait_line(/ ready  listen=/, timeout_s: 90)
    waited = { "x-request-start" => "t=#{(Time.now.to_f - 0.2).round(3)}" }
    assert_equal "shown", @server.get("/show", headers: waited).body
    assert_equal 500, @server.get(error).status if error
  end

  # Waits until everything has arrived; then the log has no complaint, and the server ends as ever.
  def arrives(*patterns)
    patterns.each { |pattern| @endpoint.wait(pattern) }
    assert_equal 0, @server.stop(timeout_s: 60)
    # Rails' main branch may have deprecated what a release of an instrument calls.
    theirs = /DEPRECATION WARNING: .* at #{Regexp.escape(ENV.fetch("CHATON_INSTRUMENTS"))}/
    assert_empty @server.log.lines.grep(COMPLAINT).grep_v(Regexp.union(EXPECTED, theirs))
  ensure
    @endpoint.close
  end
end
