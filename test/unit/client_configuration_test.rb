# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "json"
require "open3"
require "rbconfig"
require "tmpdir"

# How a process that is not a Chaton server, such as a console or Puma, finds the configuration.
class ClientConfigurationTest < Minitest::Test
  LIB = File.expand_path("../../lib", __dir__)
  VARIABLES = %w[RACK_ENV RAILS_ENV APP_ENV].freeze

  def setup
    @root = Dir.mktmpdir("chaton-client")
    FileUtils.mkdir_p(File.join(@root, "config"))
    File.write(File.join(@root, "config/chaton.rb"), "jobs { }")
  end

  def teardown
    FileUtils.remove_entry(@root)
  end

  def test_the_variables_stay_as_they_are
    written = { "RACK_ENV" => "production", "RAILS_ENV" => "staging" }
    assert_equal ["production", written], read(written)
    assert_equal ["development", {}], read({})
  end

  def test_the_environment_is_that_of_rails
    written = { "RACK_ENV" => "production", "APP_ENV" => "own" }
    assert_equal ["staging", written], read(written, "module Rails; def self.env = :staging; end")
  end

  # A module of that name is in gems that other frameworks use too.
  def test_a_module_named_rails_is_no_rails
    assert_equal ["production", { "RACK_ENV" => "production", "RAILS_ENV" => "staging" }],
                 read({ "RACK_ENV" => "production", "RAILS_ENV" => "staging" }, "module Rails; module Html; end; end")
  end

  def test_the_logger_of_rails_may_come_later
    assert_equal "[true, true, :rails, :rails, :own]", run_in_app(<<~RUBY)
      module Rails
        class << self
          attr_accessor :logger
        end
      end
      before = Chaton::Jobs.logger
      same = Chaton::Jobs.logger.equal?(before)
      Rails.logger = :rails
      seen = [before.is_a?(Chaton::Logger), same, Chaton::Jobs.logger, Chaton::Streams.logger]
      Chaton::Jobs.logger = :own
      print [*seen, Chaton::Jobs.logger].inspect
    RUBY
  end

  private

  # @return [Array(String, Hash)] the environment of the plan, and the variables afterwards
  def read(variables, before = "")
    JSON.parse(run_in_app(<<~RUBY, variables))
      #{before}
      plan = Chaton.read_configuration
      print JSON.generate([plan.environment, ENV.slice(*#{VARIABLES})])
    RUBY
  end

  def run_in_app(script, variables = {})
    out, err, status = Open3.capture3({ **VARIABLES.to_h { |name| [name, nil] }, **variables }, RbConfig.ruby, "-W0",
                                      "-I", LIB, "-r", "chaton", "-r", "json", chdir: @root, stdin_data: script)
    assert_equal ["", true], [err, status.success?]
    out
  end
end
