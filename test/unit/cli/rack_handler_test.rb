# frozen_string_literal: true

require "open3"
require_relative "cli_case"
require "chaton/rack_handler"

class RackHandlerTest < CLICase
  def test_rackup_finds_it
    assert_same Chaton::RackHandler, handlers.get("chaton")
  end

  def test_options_of_rackup
    plan = plan(Host: "localhost", Port: 9393, environment: "production", Threads: "2:4", Silent: true)
    assert_equal [loopback(9393), "production", 2, 4, :warn],
                 [plan.binds.map(&:to_s), plan.environment, plan.threads_min, plan.threads_max, plan.log_level]
    assert_equal loopback(1), plan(Port: "1").binds.map(&:to_s)
    assert_equal ["tcp://[::1]:9292"], plan(Host: "::1").binds.map(&:to_s)
    assert_equal ["unix://#{@root}/a.sock"], plan(Host: "./a.sock", Port: 9292).binds.map(&:to_s)
  end

  def test_options_that_rails_sets_by_itself_yield_to_the_file
    rails = { Host: "localhost", Port: 3000, user_supplied_options: [] }
    assert_equal loopback(3000), plan(**rails).binds.map(&:to_s)
    FileUtils.mkdir_p("config")
    File.write("config/puma.rb", "port 4000\npidfile 'tmp/pids/server.pid'\nworkers 2\n")
    plan = plan(**rails, pid: "tmp/pids/server.pid")
    assert_equal ["tcp://0.0.0.0:4000"], plan.binds.map(&:to_s)
    assert_equal [0, [], nil], [plan.workers, plan.roles_by_worker, plan.pidfile]
    assert_match(/workers 2 has no effect here/, plan.notes.last)
    assert_equal loopback(5000), plan(**rails, Port: 5000, user_supplied_options: [:Port]).binds.map(&:to_s)
  end

  def test_early_hints_of_rails
    assert plan(early_hints: true).web.early_hints
    refute plan(early_hints: nil).web.early_hints
    assert_equal %w[--environment test --early-hints], arguments(environment: "test", early_hints: true)
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", "web { early_hints }\n")
    assert plan(early_hints: nil).web.early_hints
    refute plan(early_hints: false).web.early_hints
    assert_equal %w[--no-early-hints], arguments(early_hints: false)
  end

  def test_a_wrong_option
    assert_raises(Chaton::Config::Invalid) { plan(Threads: "many") }
  end

  def test_on_macos_puma_serves_if_it_is_there
    FileUtils.mkdir_p("rack/handler")
    File.write("rack/handler/puma.rb", <<~RUBY)
      module Rack
        module Handler
          module Puma
            def self.run(app, **options) = print(yield("server"), app, options.sort)
          end
        end
      end
    RUBY
    assert_equal ['SERVERapp[[:Host, "localhost"], [:Port, 9292]]', ""], on_macos
  end

  def test_on_macos_without_puma_it_says_to_use_it
    FileUtils.mkdir_p("rack/handler")
    File.write("rack/handler/puma.rb", "raise LoadError")
    output, error = on_macos
    assert_equal "", output
    assert_match(/Chaton serves on Linux, and this is darwin23: use Puma for development here/, error)
  end

  private

  # @return [Array<String>] the output and the errors
  def on_macos
    script = <<~RUBY
      RbConfig::CONFIG["host_os"] = "darwin23"
      require "chaton/rack_handler"
      Chaton::RackHandler.run("app", Host: "localhost", Port: 9292) { |server| server.upcase }
    RUBY
    Open3.capture3(RbConfig.ruby, "-I", File.expand_path("../../../lib", __dir__), "-I.", "-rrbconfig", "-e", script)
      .first(2)
  end

  # Since Rack 3 they are in a gem of their own.
  def handlers
    require "rackup/handler"
    Rackup::Handler
  rescue LoadError
    require "rack/handler"
    Rack::Handler
  end

  # @return [Array<String>] what localhost stands for
  def loopback(port)
    hosts = ["127.0.0.1", *("[::1]" if Socket.ip_address_list.any?(&:ipv6_loopback?))]
    hosts.map { |host| "tcp://#{host}:#{port}" }
  end

  def arguments(**options) = Chaton::RackHandler.command_arguments(options)

  def plan(**options) = Chaton::RackHandler.plan(options)
end
