# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

# An application in development, or in its tests, on a system for which there is no shared object.
class OtherSystemTest < Minitest::Test
  LIB = File.expand_path("../../lib", __dir__)
  TESTS = File.expand_path("streams", __dir__)
  BEGINNING = <<~RUBY
    require "rbconfig"
    RbConfig::CONFIG["host_os"] = "darwin24"
    require "chaton"
    class Job
      include Chaton::Job
      def perform(number) = print("ran \#{number};")
    end
  RUBY

  def test_in_development_a_job_runs_where_it_is_enqueued
    out, = run_in_app(<<~RUBY)
      Job.perform_async(1)
      Job.perform_in(60, 2)
      print $LOADED_FEATURES.grep(/chaton_native/).size
    RUBY
    warning, rest = out.lines
    assert_match(/WARN  Chaton runs jobs on Linux only: here, in development, each job runs at once/, warning)
    assert_equal "ran 1;ran 2;0", rest
  end

  def test_elsewhere_calls_raise_an_error_that_says_what_to_do
    out, = run_in_app(<<~RUBY, "RACK_ENV" => "production")
      [-> { Job.perform_async(1) }, -> { Chaton.produce("events", "x") }].each do |call|
        call.call
      rescue => e
        print e.is_a?(Chaton::Error), e.message[/use Puma for development here/], e.message[/Tests .* Chaton::Testing/], ";"
      end
    RUBY
    assert_equal "trueuse Puma for development hereTests keep jobs and records in memory with Chaton::Testing;" * 2, out
  end

  # The same tests as on Linux.
  def test_consumers_are_tested_without_the_shared_object
    out, status = run_in_app(<<~RUBY)
      $LOAD_PATH.unshift #{File.expand_path("..", __dir__).inspect}
      load #{File.join(TESTS, "batch_test.rb").inspect}
      load #{File.join(TESTS, "consumer_test.rb").inspect}
      Minitest.after_run { print "native: \#{$LOADED_FEATURES.grep(/chaton_native/).size}" }
    RUBY
    assert_predicate status, :success?, out
    assert_match(/[1-9]\d runs, .* 0 failures, 0 errors, 0 skips/, out)
    assert_includes out, "native: 0"
  end

  private

  def run_in_app(script, variables = {})
    Dir.mktmpdir do |root|
      FileUtils.mkdir_p(File.join(root, "config"))
      File.write(File.join(root, "config/chaton.rb"), "jobs { }\nstreams { }\n")
      variables = { "RACK_ENV" => nil, "RAILS_ENV" => nil, "APP_ENV" => nil, "CHATON_CONFIG" => nil, **variables }
      Open3.capture2e(variables, RbConfig.ruby, "-W0", "-I", LIB, "-", chdir: root, stdin_data: BEGINNING + script)
    end
  end
end
