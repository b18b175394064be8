# frozen_string_literal: true

require "fileutils"
require_relative "../../test/support/bundle"
require_relative "test_process"

# The tests of a lane of `bin/matrix rails`: ours that have to do with Rails, and Rails' own on Chaton, from its source.
class RailsTests
  # Ours, beside those in test/rails.
  FILES = %w[rails/**/* unit/rails/* unit/jobs/active_job* integration/supervisor/rails_server
             integration/web/rails_event_streams integration/jobs/{active_job,import,own_transaction,own_work}
             boundary/server examples/rails].map { |name| "test/#{name}_test.rb" }.freeze
  # What is added to Rails' source: where Puma or an adapter stands in a test, Chaton.
  ADDED = "test/support/rails/source"
  # Folder and file of Rails' own tests, with their variables.
  THEIRS = {
    %w[activejob chaton_cases] => { "AJ_ADAPTER" => "chaton" },
    %w[activejob integration/chaton] => { "AJ_ADAPTER" => "chaton", "AJ_INTEGRATION_TESTS" => "1" },
    %w[actioncable chaton] => {},
    %w[actionpack chaton] => {},
    %w[railties application/chaton] => {},
    %w[railties commands/server_test] => {}
  }.freeze

  # @param source [String, nil] folder of Rails' source
  def initialize(source)
    @source = source or abort "these tests need the source of a Rails, so they run in: bin/matrix rails"
    # Rails 8.0 would download drivers of browsers, which these tests do not start.
    drivers = %w[SE_CHROMEDRIVER SE_GECKODRIVER].to_h { |name| [name, "/usr/bin/chromedriver"] }
    @env = { **drivers, "BUNDLE_GEMFILE" => File.join(@source, "Gemfile"), "CHATON_CHECKOUT" => Dir.pwd,
                        "RAILS_MINITEST_PLUGIN" => "1" }
  end

  # @return [Array<TestProcess>]
  def theirs
    FileUtils.cp_r("#{ADDED}/.", @source)
    FileUtils.rm_f("#{@source}/Gemfile.lock")
    FileUtils.mkdir_p("#{@source}/tmp")
    system(@env, Bundle.command, "install", "--local", "--quiet", exception: true)
    THEIRS.map do |(folder, file), env|
      TestProcess.new("rails", "Rails' #{folder} #{file}", ["ruby", "-rbundler/setup", "-Itest", "test/#{file}.rb"],
                      env: { **@env, **env }, dir: File.join(@source, folder))
    end
  end
end
