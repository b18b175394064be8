# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

# A Rails application in a process of its own, which is no server of Chaton.
class RailtieTest < Minitest::Test
  LIB = File.expand_path("../../../lib", __dir__)
  APPLICATION = <<~RUBY
    require "logger"
    require "rails"
    require "active_job/railtie"
    require "chaton"
    class App < Rails::Application
      config.root = __dir__
      config.eager_load = false
      config.logger = Logger.new(nil)
      config.active_job.queue_adapter = :chaton
      # Rails 8.0 warns without it.
      config.active_support.to_time_preserves_timezone = :zone if Rails.version.start_with?("8.0.")
    end
  RUBY

  def setup
    needs_gems "bigdecimal", "nokogiri"
    @root = File.realpath(Dir.mktmpdir("chaton-railtie"))
    write("application.rb", APPLICATION)
  end

  def teardown
    FileUtils.remove_entry(@root) if @root
  end

  def test_an_initializer_names_the_store_and_no_file_is_needed
    initializer(<<~RUBY)
      Chaton::Jobs.configure { |jobs| jobs.store "redis://127.0.0.1:1/3", password: "secret", answer_timeout_s: 2 }
      Chaton::Streams.configure { |streams| streams.broker "kafka://127.0.0.1:9", username: "app", kafka: { "a.b" => 1 } }
    RUBY
    assert_equal <<~TEXT.chomp, run_app(<<~RUBY).gsub(" => ", "=>")
      ["redis://127.0.0.1:1/3", "secret", 2.0, 15.0, "kafka://127.0.0.1:9", "app", {"a.b"=>"1"}]
    TEXT
      store = Chaton::Jobs.send(:configured, :jobs, "").store_settings
      log = Chaton::Streams.send(:configured, :streams, "").log
      print [*store.values_at(:url, :password, :answer_timeout_s, :lease_s), *log.values_at(:broker, :username, :properties)]
    RUBY
  end

  def test_config_chaton_does_the_same
    write("application.rb", "#{APPLICATION}App.config.chaton.store = 'redis://127.0.0.1:1/4'\n")
    assert_equal "redis://127.0.0.1:1/4", run_app("print Chaton::Jobs.send(:configured, :jobs, '').store")
  end

  # As the defaults of Rails 8.2 have it, which older ones do not take from config.
  def test_a_store_in_postgresql_takes_jobs_into_the_transaction
    defaults = <<~RUBY
      ActiveSupport.on_load(:active_job) { class_attribute(:enqueue_after_transaction_commit, default: true) }
      class App
        config.active_job.enqueue_after_transaction_commit = true
        config.define_singleton_method(:loaded_config_version) { ENV["VERSION"] }
        config.chaton.store = ENV["STORE"]
      end
    RUBY
    write("application.rb", APPLICATION + defaults)
    seen = [%w[postgres://127.0.0.1:1/app 8.2], %w[postgres://127.0.0.1:1/app 7.2], %w[redis://127.0.0.1:1/4 8.2]]
      .map do |store, version|
        run_app("print ActiveJob::Base.enqueue_after_transaction_commit", { "STORE" => store, "VERSION" => version })
      end
    assert_equal %w[false true true], seen
  end

  def test_the_store_of_the_application_goes_before_that_of_the_file
    write("config/chaton.rb", 'jobs { store "redis://127.0.0.1:1/1"; lease 30; dead_max 7 }')
    initializer('Chaton::Jobs.configure { |jobs| jobs.store "redis://127.0.0.1:1/2" }')
    assert_equal '["redis://127.0.0.1:1/2", 30.0, 7]', run_app(<<~RUBY)
      print Chaton::Jobs.send(:configured, :jobs, "").store_settings.values_at(:url, :lease_s, :dead_max)
    RUBY
  end

  def test_the_directory_is_that_of_rails
    write("config/chaton.rb", "jobs {}")
    assert_equal "sqlite://#{@root}/storage/chaton_staging.db",
                 run_app("print Chaton::Jobs.send(:configured, :jobs, '').store", { "RAILS_ENV" => "staging" })
  end

  def test_enqueueing_needs_none_of_the_servers_settings
    write("config/chaton.rb", <<~RUBY)
      workerz 2
      threads "many"
      jobs { store "redis://127.0.0.1:1/5" }
      bind "https://0.0.0.0", cert: ENV.fetch("TLS_CERT")
    RUBY
    assert_equal "redis://127.0.0.1:1/5", run_app("print Chaton::Jobs.send(:configured, :jobs, '').store")
  end

  def test_a_mistake_in_the_settings_of_jobs_is_one
    write("config/chaton.rb", 'jobs { store ENV.fetch("REDIS_URL") }')
    shown = run_app("begin; Chaton::Jobs.client; rescue Chaton::ConfigError => e; print e.message; end")
    assert_match(%r{config/chaton\.rb:1: KeyError: key not found: "REDIS_URL"}, shown)
    write("config/chaton.rb", "bind ENV.fetch('NONE')\njobs {}")
    shown = run_app("begin; Chaton::Jobs.client; rescue Chaton::ConfigError => e; print e.message; end")
    assert_match(%r{no jobs are configured.*config/chaton\.rb:1: KeyError}, shown)
  end

  def test_a_misspelt_setting_of_the_store_is_a_sentence
    shown = run_app(<<~RUBY)
      begin
        Chaton::Jobs.configure { |jobs| jobs.store "redis://h", pasword: "x" }
      rescue Chaton::ConfigError => e
        puts e.message
      end
      begin
        Chaton::Jobs.configure { |jobs| jobs.store "mysql://h" }
      rescue Chaton::ConfigError => e
        puts e.message
      end
      begin
        Chaton::Streams.configure { |streams| streams.broker "kafka://h", usrname: "a" }
      rescue Chaton::ConfigError => e
        puts e.message
      end
    RUBY
    assert_match(/\AChaton::Jobs.configure takes store, .*, not pasword; did you mean password\?$/, shown)
    assert_match(/^Chaton::Jobs.configure: store must be sqlite/, shown)
    assert_match(/^Chaton::Streams.configure takes broker, username, .*, not usrname; did you mean username\?$/, shown)
  end

  # A class method of that name often belongs to a language of the application's own.
  def test_no_method_of_the_application_is_called
    assert_equal "", run_app(<<~RUBY)
      class Dsl; def self.name(value) = @name = value; end
      class Child < Dsl; name "child"; end
      class Counted; def self.name = print("called"); end
      class Counted; end
    RUBY
  end

  def test_the_tasks_take_the_store_of_the_application
    write("config/chaton.rb", "jobs {}")
    initializer('Chaton::Jobs.configure { |jobs| jobs.store "sqlite://storage/own.db" }')
    shown = run_app(<<~RUBY)
      require "rake"
      Rails.application.load_tasks
      Chaton::Jobs.client.push("class" => "Some", "args" => [])
      Rake::Task["chaton:jobs"].invoke("stats")
    RUBY
    assert_match(%r{^store +sqlite://#{@root}/storage/own\.db$}, shown)
  end

  private

  def write(path, text)
    FileUtils.mkdir_p(File.dirname(File.join(@root, path)))
    File.write(File.join(@root, path), text)
  end

  def initializer(text) = write("config/initializers/chaton.rb", text)

  # The directory in which it runs is another one.
  def run_app(script, variables = {})
    none = %w[RACK_ENV RAILS_ENV APP_ENV REDIS_URL].to_h { |name| [name, nil] }
    script = "require '#{@root}/application'\nApp.initialize!\n#{script}"
    out, err, status = Open3.capture3({ **none, **variables }, RbConfig.ruby, "-W0", "-I", LIB, chdir: "/",
                                                                                                stdin_data: script)
    assert_equal ["", true], [err, status.success?]
    out
  end
end
