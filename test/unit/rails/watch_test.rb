# frozen_string_literal: true

require "test_helper"
require "open3"
require "rbconfig"

# Chaton's part for Rails is loaded with the application, although "chaton" was required before it.
class RailsWatchTest < Minitest::Test
  LIB = File.expand_path("../../../lib", __dir__)

  def test_the_adapter_of_active_job_is_found
    needs_gems "bigdecimal"
    assert_equal "ActiveJob::QueueAdapters::ChatonAdapter", in_process(<<~RUBY)
      Chaton::RailsWatch.during do
        require "active_support"
        require "active_job"
        require "chaton"
        ActiveJob::Base.queue_adapter = :chaton
        print ActiveJob::Base.queue_adapter.class.name
      end
    RUBY
  end

  def test_an_application_without_rails_gets_nothing_of_it
    assert_equal "[nil, 0]", in_process(<<~RUBY)
      Chaton::RailsWatch.during { module Other; end }
      print [defined?(ActiveSupport), $LOADED_FEATURES.grep(%r{chaton/rails\\.rb}).size].inspect
    RUBY
  end

  # A class method of that name often belongs to a language of the application's own.
  def test_no_method_of_the_application_is_called
    assert_equal "Other", in_process(<<~RUBY)
      require "chaton/jobs/gem_watch"
      Chaton::RailsWatch.during do
        Chaton::Jobs::GemWatch.during(server: true) do
          class Dsl; def self.name(value) = @name = value; end
          class Child < Dsl; name "child"; end
          class Counted; def self.name = print("called"); end
          class Counted; end
        end
      end
      print Module.new.then { |other| Object.const_set(:Other, other).name }
    RUBY
  end

  def test_nothing_is_watched_after_the_application_is_loaded
    assert_equal "[true, nil]", in_process(<<~RUBY)
      require "chaton/config"
      require "chaton/telemetry/log"
      require "chaton/service/code"
      require "stringio"
      require "tmpdir"
      Dir.mktmpdir do |root|
        Dir.chdir(root)
        File.write("config.ru", "module ActiveJob; end; run ->(_) { [200, {}, []] }")
        given = { web: true, store: "sqlite://jobs.db", config_file: "-" }
        plan = Chaton::Config.load(given, env: {}, root: root)
        app = Chaton::Service::Code.load(plan, [:web], log: Chaton::Telemetry::Log.new(io: StringIO.new))
        eval "module ActiveJob::QueueAdapters; end"
        print [app.respond_to?(:call), ActiveJob::QueueAdapters.autoload?(:ChatonAdapter)].inspect
      end
    RUBY
  end

  private

  def in_process(code)
    out, err, status = Open3.capture3(RbConfig.ruby, "-W0", "-I", LIB, "-r", "chaton", "-r", "chaton/rails/watch",
                                      stdin_data: code)
    assert_equal ["", true], [err, status.success?]
    out
  end
end
