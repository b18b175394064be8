# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rbconfig"
require "ripper"
require "tmpdir"

# `rails g chaton:install` in the files that `rails new` makes.
class InstallGeneratorTest < Minitest::Test
  LIB = File.expand_path("../../../lib", __dir__)
  FILES = {
    "Gemfile" => "source \"https://example.org\"\n\ngem \"rails\"\n# Web server\ngem \"puma\", \">= 5.0\"\n",
    "config/application.rb" =>
      "module My\n  class Application < Rails::Application\n    config.load_defaults 6.1\n  end\nend\n",
    "config/environments/production.rb" =>
      "Rails.application.configure do\n  config.active_job.queue_adapter = :solid_queue\n  " \
      "config.solid_queue.connects_to = { database: { writing: :queue } }\nend\n",
    "config/environments/test.rb" => "Rails.application.configure do\nend\n",
    "config/routes.rb" => "Rails.application.routes.draw do\nend\n",
    "config/puma.rb" => "threads 3, 3\nport 3000\n",
    "Procfile.dev" => "web: bin/rails server\ncss: bin/rails tailwindcss:watch\njobs: bin/jobs\n"
  }.freeze

  def setup
    needs_gems "nokogiri"
    @root = Dir.mktmpdir("chaton-generator")
    FILES.each { |name, text| write(name, text) }
    @shown = generate
  end

  def teardown
    FileUtils.remove_entry(@root) if @root
  end

  def test_an_application_moves_over
    assert_match(/^gem "puma", ">= 5.0", group: %i\[development test\]/, read("Gemfile"))
    assert_match(/^gem "chaton"$/, read("Gemfile"))
    assert_match(/^    config.active_job.queue_adapter = :chaton$/, read("config/application.rb"))
    assert_match(/^  config.active_job.queue_adapter = :chaton$/, read("config/environments/production.rb"))
    assert_match(/^  config.active_job.queue_adapter = :test$/, read("config/environments/test.rb"))
    assert_equal "web: bin/rails server\ncss: bin/rails tailwindcss:watch\n", read("Procfile.dev")
    assert_match(%r{mount Chaton::Dashboard => "/chaton" if Rails.env.development\?}, read("config/routes.rb"))
    assert File.executable?(File.join(@root, "bin/jobs"))
    assert_match(/Its `threads` was not copied/, @shown)
    %w[Gemfile config/application.rb config/environments/production.rb config/environments/test.rb config/routes.rb]
      .each { |name| refute_nil Ripper.sexp(read(name)), name }
  end

  def test_the_configuration_has_no_mistake
    out, status = Open3.capture2e({ "RAILS_ENV" => nil, "RACK_ENV" => nil, "PORT" => nil, "WEB_CONCURRENCY" => nil },
                                  RbConfig.ruby, "-I", LIB, "-r", "chaton/config", "-e", <<~RUBY, chdir: @root)
                                    plan = Chaton::Config.load
                                    print [plan.binds.map(&:to_s), plan.workers, plan.roles, plan.jobs.store_shown.sub(Dir.pwd, "")]
                                  RUBY
    assert_predicate status, :success?, out
    assert_equal '[["tcp://0.0.0.0:3000"], 0, [:web, :jobs], "sqlite:///storage/chaton_development.db"]', out
    assert_operator read("config/chaton.rb").lines.grep_v(/^\s*(#|$)/).size, :<=, 15
  end

  def test_twice_is_once
    before = FILES.keys.to_h { |name| [name, read(name)] }
    generate
    assert_equal before, FILES.keys.to_h { |name| [name, read(name)] }
  end

  private

  def generate
    out, status = Open3.capture2e(RbConfig.ruby, "-W0", "-I", LIB, "-e", <<~RUBY, chdir: @root)
      require "rails"
      require "rails/generators"
      require "chaton"
      Rails::Generators.invoke("chaton:install", ["--force"], destination_root: Dir.pwd)
    RUBY
    assert_predicate status, :success?, out
    out
  end

  def write(path, text)
    FileUtils.mkdir_p(File.dirname(File.join(@root, path)))
    File.write(File.join(@root, path), text)
  end

  def read(path) = File.read(File.join(@root, path))
end
