# frozen_string_literal: true

require_relative "cli_case"
require "chaton/rack_handler"

class RackHandlerTest < CLICase
  def test_rackup_finds_it
    assert_same Chaton::RackHandler, handlers.get("chaton")
  end

  def test_options_of_rackup
    plan = plan(Host: "localhost", Port: 9393, environment: "production", Threads: "2:4", Silent: true)
    assert_equal ["tcp://localhost:9393", "production", 2, 4, :warn],
                 [plan.binds.join, plan.environment, plan.threads_min, plan.threads_max, plan.log_level]
    assert_equal ["tcp://localhost:1"], plan(Port: "1").binds.map(&:to_s)
    assert_equal ["tcp://[::1]:9292"], plan(Host: "::1").binds.map(&:to_s)
    assert_equal ["unix://#{@root}/a.sock"], plan(Host: "./a.sock", Port: 9292).binds.map(&:to_s)
  end

  def test_options_that_rails_sets_by_itself_yield_to_the_file
    rails = { Host: "localhost", Port: 3000, user_supplied_options: [] }
    assert_equal ["tcp://localhost:3000"], plan(**rails).binds.map(&:to_s)
    FileUtils.mkdir_p("config")
    File.write("config/puma.rb", "port 4000\npidfile 'tmp/pids/server.pid'\nworkers 2\n")
    plan = plan(**rails, pid: "tmp/pids/server.pid")
    assert_equal ["tcp://0.0.0.0:4000"], plan.binds.map(&:to_s)
    assert_equal [0, [], nil], [plan.workers, plan.roles_by_worker, plan.pidfile]
    assert_match(/workers 2 has no effect here/, plan.notes.last)
    assert_equal ["tcp://localhost:5000"], plan(**rails, Port: 5000, user_supplied_options: [:Port]).binds.map(&:to_s)
  end

  def test_a_wrong_option
    assert_raises(Chaton::Config::Invalid) { plan(Threads: "many") }
  end

  private

  # Since Rack 3 they are in a gem of their own.
  def handlers
    require "rackup/handler"
    Rackup::Handler
  rescue LoadError
    require "rack/handler"
    Rack::Handler
  end

  def plan(**options) = Chaton::RackHandler.plan(options)
end
