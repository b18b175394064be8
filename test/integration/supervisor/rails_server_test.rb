# frozen_string_literal: true

require "test_helper"
require "chaton/version"
require "support/server"

# `bin/rails server` of an application that requires chaton and no other server, with a config/puma.rb.
class RailsServerTest < Minitest::Test
  include ServerTest

  # Runs `bin/rails server` instead of `chaton`.
  class RailsServer < Server
    WAIT_S = 60
    APPLICATION = <<~RUBY
      require "rails"
      require "action_controller/railtie"
      require "active_job/railtie"
      require "chaton"
      class Small < Rails::Application
        config.root = File.expand_path("..", __dir__)
        config.eager_load = false
        config.secret_key_base = "0" * 64
        config.hosts.clear
        config.active_job.queue_adapter = :chaton
      end
      class PidController < ActionController::Base
        def show = render(plain: Process.pid)
      end
    RUBY
    FILES = {
      "config/application.rb" => APPLICATION,
      "log/.keep" => "",
      "config.ru" => "require_relative 'config/application'\nRails.application.initialize!\n" \
                     "Rails.application.routes.draw { get '/', to: 'pid#show' }\nrun Rails.application\n",
      "bin/rails" => "APP_PATH = File.expand_path('../config/application', __dir__)\nrequire 'rails/commands'\n"
    }.freeze

    def initialize(puma: "", environment: "production", files: {}, **options)
      super(rackup: nil, env: { "RAILS_ENV" => environment, "RACK_ENV" => nil }, **options)
      FileUtils.rm(path("config/chaton.rb"))
      FILES.merge({ "config/puma.rb" => puma }.compact, files).each { |name, text| write(name, text) }
    end

    def command = [RbConfig.ruby, "-I", LIB, "bin/rails", "server", *@args]
  end

  def setup
    needs_gems "bigdecimal", "nokogiri"
  end

  def test_a_single_process_in_development_serves_as_rails_server
    server = boot_rails(environment: "development", args: %w[-b 127.0.0.1 -p 0])
    assert_match(/^=> Booting Chaton #{Chaton::VERSION}$/, server.log)
    server.wait_line(%r{^Chaton #{Chaton::VERSION} · threads 1–\d+ · http://localhost:#{server.port}$})
    assert_equal server.pid.to_s, server.get.body
    server.wait_line(/Completed 200 OK/)
    refute_match(/allocator: /, server.log)
    assert_equal 0, server.stop("INT", timeout_s: 60)
  end

  def test_workers_are_those_of_the_command
    server = boot_rails(puma: "port 0, '127.0.0.1'\nworkers 2\n", args: %w[--log-to-stdout])
    assert_match(/^=> Booting Chaton/, server.log)
    assert_includes server.workers.map(&:to_s), server.get.body
    server.wait_line(/Completed 200 OK/)
    before = server.workers
    server.signal("USR1")
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: 60)
    server.eventually("the workers are new", timeout_s: 60) { (before & server.workers).empty? }
    assert_equal 0, server.stop(timeout_s: 60)
  end

  STORE = <<~RUBY
    Chaton::Jobs.configure { |jobs| jobs.store "sqlite://storage/own.db" }
    class PidJob < ActiveJob::Base
      def perform = puts("ran in \#{Process.pid}")
    end
    class PidController
      def show = render(plain: PidJob.perform_later.provider_job_id)
    end
  RUBY

  # Neither the supervisor nor its configuration know the store.
  def test_jobs_are_run_from_the_store_that_an_initializer_names
    server = launch_rails(puma: nil, args: %w[--log-to-stdout], files: {
                            "config/chaton.rb" => "port 0, '127.0.0.1'\nworkers web: 1, jobs: 1\njobs {}\n",
                            "config/initializers/store.rb" => STORE
                          })
    server.wait_line(/ ready  listen=/, timeout_s: 60)
    assert_match(/\A\h{24}\z/, server.get.body)
    server.wait_line(/^ran in \d+$/, timeout_s: 60)
    server.wait_line(%r{jobs are run .*store=sqlite:///\S*/storage/own\.db})
    assert_equal ["own.db"], Dir.children(server.path("storage")).grep(/db\z/)
    assert_equal 0, server.stop(timeout_s: 60)
  end

  def test_another_server_that_is_named_is_used
    server = launch_rails(args: %w[-u nonesuch])
    assert_equal 0, server.wait_exit(timeout_s: 60)
    assert_match(/Could not find server "?'?nonesuch/, server.log)
  end

  def test_a_mistake_in_the_configuration_is_a_sentence
    server = launch_rails(puma: "workerz 2\n")
    assert_equal 1, server.wait_exit(timeout_s: 60)
    assert_match(/^chaton: .*workerz/m, server.log)
    refute_match(%r{chaton/rails/server\.rb:\d+}, server.log)
  end

  private

  def launch_rails(**options)
    server = RailsServer.new(**options)
    (@servers ||= []) << server
    server.start
  end

  def boot_rails(**options)
    launch_rails(**options).tap { |server| server.wait_line(/ ready  listen=/, timeout_s: 60) }
  end
end
