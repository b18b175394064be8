# frozen_string_literal: true

require_relative "config_case"

class LoaderTest < ConfigCase
  def test_defaults
    plan = load
    assert_equal ["tcp://0.0.0.0:9292"], plan.binds.map(&:to_s)
    assert_equal [0, [], [:web]], [plan.workers, plan.roles_by_worker, plan.roles]
    assert_equal [1, 32, false], [plan.threads_min, plan.threads_max, plan.threads_max_given?]
    assert_equal [1024, 64 << 20, 15.0, 1],
                 [plan.queue_limit, plan.queue_bytes_max, plan.queue_age_s, plan.retry_after_s]
    assert_equal File.join(@root, "config.ru"), plan.rackup
    assert_equal File.join(@root, "tmp/chaton.sock"), plan.control_socket
    assert_nil plan.config_file
    assert_predicate plan, :frozen?
    refute_predicate plan, :preload?
  end

  def test_servers_of_one_directory_have_control_sockets_of_their_own
    names = { { jobs: true } => "chaton-jobs", { streams: true, jobs: true } => "chaton-jobs-streams",
              { web: true, jobs: true } => "chaton" }
    write("config/chaton.rb", "jobs { }\nstreams { topic \"events\", \"Object\" }")
    names.each { |given, name| assert_equal File.join(@root, "tmp/#{name}.sock"), load(given).control_socket }
    write("config/chaton.rb", "workers streams: 1, jobs: 1\njobs { }\nstreams { topic \"events\", \"Object\" }")
    assert_equal File.join(@root, "tmp/chaton-jobs-streams.sock"), load.control_socket
    assert_equal File.join(@root, "x.sock"), load({ control_socket: "x.sock" }).control_socket
  end

  # The directories of Capistrano: a link `current` leads to one of the releases.
  def test_the_control_socket_of_a_release_is_where_the_next_one_finds_it
    root = File.realpath(@root)
    %w[releases/1 releases/2 shared].each { |path| FileUtils.mkdir_p(File.join(root, path)) }
    File.symlink("releases/1", File.join(root, "current"))
    [File.join(root, "current"), File.join(root, "releases/2")].each do |path|
      plan = Chaton::Config.load({}, env: {}, root: path)
      assert_equal [path, File.join(root, "shared/tmp/chaton.sock")], [plan.root, plan.control_socket]
    end
    FileUtils.rmdir(File.join(root, "shared"))
    assert_equal File.join(root, "current/tmp/chaton.sock"),
                 Chaton::Config.load({}, env: {}, root: File.join(root, "current")).control_socket
  end

  def test_development_has_no_time_limits
    plan = load
    assert_equal ["development", 0.0, 0.0], [plan.environment, plan.alive_timeout_s, plan.web.request_timeout_s]
    plan = load({ environment: "production" })
    assert_equal [60.0, 60.0], [plan.alive_timeout_s, plan.web[:request_timeout_s]]
  end

  def test_the_file_goes_before_the_environment_and_the_command_line_before_both
    @env = { "WEB_CONCURRENCY" => "3", "PORT" => "4000", "RAILS_MAX_THREADS" => "9" }
    plan = load
    assert_equal [3, "tcp://0.0.0.0:4000", 1, 9], [plan.workers, plan.binds.join, plan.threads_min, plan.threads_max]
    assert_predicate plan, :preload?
    plan = plan("workers 2\nport 5000\nthreads 2..4")
    assert_equal [2, "tcp://0.0.0.0:5000", 2, 4], [plan.workers, plan.binds.join, plan.threads_min, plan.threads_max]
    plan = load({ workers: "1", bind: ["tcp://127.0.0.1:0"], threads: "5:6" })
    assert_equal [1, "tcp://127.0.0.1:0", 5, 6], [plan.workers, plan.binds.join, plan.threads_min, plan.threads_max]
  end

  def test_a_minimum_of_threads_in_the_environment_leaves_the_maximum_open
    @env = { "RAILS_MIN_THREADS" => "4" }
    plan = load
    assert_equal [4, 32, false], [plan.threads_min, plan.threads_max, plan.threads_max_given?]
  end

  def test_a_variable_that_makes_no_sense_is_named
    @env = { "WEB_CONCURRENCY" => "many" }
    error = assert_raises(Chaton::Config::Invalid) { load }
    assert_match(/environment variable WEB_CONCURRENCY: workers must be .* not "many"/, error.message)
    assert_equal 2, load({ workers: "2" }).workers, "it is overruled, so nobody needs it to make sense"
  end

  def test_which_file_is_read
    write("config/puma.rb", "tag 'puma'")
    assert_equal "puma", load.tag
    write("config/puma/production.rb", "tag 'production'")
    assert_equal "production", load({ environment: "production" }).tag
    write("config/chaton.rb", "tag 'own'")
    assert_equal ["own", File.join(@root, "config/chaton.rb")], load.then { |plan| [plan.tag, plan.config_file] }
    assert_equal "puma", load({ config_file: "config/puma.rb" }).tag
    assert_equal File.basename(@root), load({ config_file: "-" }).tag
    @env["CHATON_CONFIG"] = "config/puma.rb"
    assert_equal "puma", load.tag
  end

  def test_a_file_that_is_not_there
    error = assert_raises(Chaton::Config::Invalid) { load({ config_file: "none.rb" }) }
    assert_match(/command line: none.rb cannot be read: No such file/, error.message)
  end

  def test_the_environment_is_exported_before_the_file_is_read
    @env["RAILS_ENV"] = "development"
    load({ environment: "staging" })
    assert_equal %w[staging staging], @env.values_at("RACK_ENV", "RAILS_ENV")
    refute @env.key?("APP_ENV")
    plan("environment 'production'")
    assert_equal %w[production production], @env.values_at("RACK_ENV", "RAILS_ENV")
  end

  def test_rails_reads_rails_env_first_and_others_app_env
    rails = { "RACK_ENV" => "production", "RAILS_ENV" => "staging", "APP_ENV" => "own" }
    @env = rails.dup
    assert_equal "own", load.environment
    assert_equal({ **rails, "RACK_ENV" => "own" }, @env)
    write("config/environment.rb", "")
    @env = rails.dup
    assert_equal "staging", load.environment
    assert_equal({ **rails, "RACK_ENV" => "staging" }, @env)
    @env = rails.except("RAILS_ENV")
    assert_equal "production", load.environment
    @env = { "APP_ENV" => "own" }
    assert_equal ["own", "own"], [load.environment, @env["RACK_ENV"]]
  end

  def test_the_environment_that_is_written_is_that_of_rails_too
    write("config/environment.rb", "")
    @env = { "RAILS_ENV" => "production", "APP_ENV" => "own" }
    assert_equal "staging", load({ environment: "staging" }).environment
    assert_equal({ "RACK_ENV" => "staging", "RAILS_ENV" => "staging", "APP_ENV" => "own" }, @env)
  end

  def test_variables_that_differ_are_named
    @env = { "RACK_ENV" => "production", "RAILS_ENV" => "staging" }
    write("config/environment.rb", "")
    assert_equal ["RACK_ENV=production, RAILS_ENV=staging: the environment is that of RAILS_ENV. " \
                  "Set them to the same, or unset the others"], load.warnings
    assert_empty load({ environment: "test" }).warnings
    @env = { "RACK_ENV" => "staging", "RAILS_ENV" => "staging", "APP_ENV" => "" }
    assert_empty load.warnings
  end

  def test_a_rails_application_in_another_directory
    write("app/config/environment.rb", "")
    @env = { "RACK_ENV" => "production", "RAILS_ENV" => "staging", "APP_ENV" => "own" }
    assert_equal "staging", plan("directory \"app\"").environment
  end

  def test_retries_are_left_to_sidekiqs_settings_unless_they_are_written
    assert_equal [nil, 5], [plan("jobs { }").jobs.retries_max, plan("jobs { retries_max 5 }").jobs.retries_max]
  end

  def test_paths_start_in_the_directory
    plan = plan(<<~RUBY)
      directory "/srv/app"
      pidfile "tmp/server.pid"
      bind "unix://tmp/app.sock?umask=0117&mode=0660&backlog=64"
      stdout_redirect "log/out.log", nil, true
    RUBY
    assert_equal ["/srv/app", "/srv/app/tmp/server.pid", "app"], [plan.root, plan.pidfile, plan.tag]
    assert_equal ["/srv/app/log/out.log", nil, true], plan.stdout_redirect
    bind = plan.binds.first
    assert_equal ["unix:///srv/app/tmp/app.sock", 0o117, 0o660, 64], [bind.to_s, bind.umask, bind.mode, bind.backlog]
  end

  def test_all_errors_at_once_with_file_line_and_nearest_name
    found = problems(<<~RUBY, { workers: "x" })
      wokers 3
      web { timeuot 3; queue limt: 1 }
      log_level :loud
      threads 8..2
    RUBY
    assert_equal [
      ["command line", nil, nil], ["config/chaton.rb", 1, "workers"], ["config/chaton.rb", 2, "timeout"],
      ["config/chaton.rb", 2, "limit:"], ["config/chaton.rb", 3, nil], ["config/chaton.rb", 4, nil]
    ], found.map { |problem| [problem.file, problem.line, problem.suggestion] }
    assert_equal "config/chaton.rb:3: log_level must be debug, info, warn or error, not :loud", found[4].to_s
  end

  def test_rules_between_options
    problem = only_problem("web { uri_bytes_max \"128K\" }")
    assert_match(/uri_bytes_max \(128 KiB\) is above header_bytes_max \(112 KiB\)/, problem.to_s)
  end

  def test_a_plan_as_json
    require "json"
    copy = JSON.parse(JSON.generate(plan("before_fork { }\nbind 'tcp://[::1]:80'").to_h))
    assert_equal [["tcp://[::1]:80"], 1, 30.0],
                 [copy["binds"], copy["hooks"]["before_fork"], copy["web"]["header_timeout_s"]]
  end
end
