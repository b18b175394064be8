# frozen_string_literal: true

require_relative "config_case"

class DSLTest < ConfigCase
  def test_the_example_of_the_design
    plan = plan(<<~RUBY)
      workers web: 2
      threads 1..16
      bind "http://127.0.0.1:9292"
      web { queue limit: 10, age: 0.5; timeout 2 }
    RUBY
    assert_equal [2, [[:web], [:web]], true], [plan.workers, plan.roles_by_worker, plan.preload?]
    assert_equal [1, 16, true], [plan.threads_min, plan.threads_max, plan.threads_max_given?]
    assert_equal [10, 0.5], [plan.queue_limit, plan.queue_age_s]
    assert_equal ["tcp://127.0.0.1:9292", 2.0], [plan.binds.join, plan.web.request_timeout_s]
  end

  def test_every_option_can_be_set_in_a_file
    lines = { top: +"", web: +"", queue: +"", jobs: +"", streams: +"", live: +"", memory: +"", admin: +"",
              traces: +"" }
    Chaton::Config::Options::ALL.each do |option|
      next if option.default.nil? || option.default.respond_to?(:call) || option.scope == :topic

      value = option.default
      value = value.values.first if option.name == :workers
      value = value.threads_min..value.threads_max if option.name == :threads
      name = option.scope == :queue ? "queue #{option.key}:" : option.name
      lines.fetch(option.scope) << "#{name} #{value.inspect}\n"
    end
    write("config/sidekiq.yml", "")
    plan = plan("#{lines[:top]}web do\n#{lines[:web]}#{lines[:queue]}end\njobs do\n#{lines[:jobs]}end\n" \
                "streams do\n#{lines[:streams]}end\nlive do\n#{lines[:live]}end\n" \
                "memory do\n#{lines[:memory]}end\nadmin do\n#{lines[:admin]}end\ntraces do\n#{lines[:traces]}end")
    defaults = Chaton::Config.load({ environment: "development", config_file: "-" }, env: {}, root: @root)
    assert_equal defaults.queue_age_s, plan.queue_age_s
    assert_equal 60.0, plan.web.request_timeout_s, "a file that says so has a time limit in development too"
  end

  def test_a_value_that_is_no_setting_any_more_says_what_it_is
    { "restart_delay_s 1" => /restart_delay_s is now fixed at 0.5, because .+; remove the line/,
      "web { queue bytes: 1 }" => /queue bytes: is now fixed at 64 MiB, because/,
      "web { tls_reload 1 }" => /tls_reload is now fixed at 10, because/,
      "jobs { beat 1 }" => /beat is now fixed at a fifth of lease_s, at most 3, because/,
      "admin { timeout 1 }" => /:1: timeout is now fixed at 5, because/,
      "web { prefetch_s 1 }" => /prefetch_s is now fixed at 0.005, because/ }.each do |line, expected|
      assert_match expected, only_problem(line).to_s, line
    end
    assert_in_delta 0.1, plan("constants_for_tests restart_delay_s: 0.1").restart_delay_s
  end

  def test_paths_whose_bodies_are_streamed
    paths = plan(%(web do\n  stream_bodies "/uploads/*", "/import"\n  stream_bodies "/more"\nend)).web.stream_bodies
    assert_equal %w[/uploads/* /import /more], paths.flatten
    ["uploads", "/a*b", "/a b", 7].each do |wrong|
      problem, = problems("web { stream_bodies #{wrong.inspect} }")
      assert_includes problem.to_s, "stream_bodies must be paths such as /import or /uploads/*"
    end
  end

  def test_values_of_the_environment_are_strings
    @env["RACK_ENV"] = "test"
    assert_equal [2, 5], plan("workers '2'\nthreads '5', '5'").then { |plan| [plan.workers, plan.threads_min] }
  end

  def test_binds_add_up
    plan = plan("bind 'tcp://127.0.0.1:1'\nport 2\nport '3', '::1'\nbind 'tcp://127.0.0.1:1'")
    assert_equal %w[tcp://127.0.0.1:1 tcp://0.0.0.0:2 tcp://[::1]:3], plan.binds.map(&:to_s)
    assert_equal %w[tcp://0.0.0.0:2], plan("bind 'tcp://127.0.0.1:1'\nclear_binds!\nport 2").binds.map(&:to_s)
  end

  def test_hooks_are_kept_in_their_order
    plan = plan("before_fork { 1 }\nbefore_fork { 2 }\nbefore_worker_boot { |i| i }\nlowlevel_error_handler { |e| e }")
    assert_equal [1, 2], plan.hooks[:before_fork].map(&:call)
    assert_equal 7, plan.hooks[:on_worker_boot].first.call(7)
    assert_equal :oops, plan.hooks[:lowlevel_error_handler].call(:oops)
    assert_empty plan.hooks[:on_restart]
  end

  def test_methods_of_the_file_and_missing_ones_in_hooks
    plan = plan("def answer = 42\non_restart { answer }\nbefore_fork { no_such_thing }")
    assert_equal 42, plan.hooks[:on_restart].first.call
    assert_raises(NameError) { plan.hooks[:before_fork].first.call }
  end

  def test_our_constants_are_out_of_reach
    assert_match(/NameError: uninitialized constant .*Plan/, only_problem("Plan").message)
    assert_equal File.join(@root, "config.ru"), plan("rackup DefaultRackup if defined?(DefaultRackup)").rackup
  end

  def test_files_load_files
    write("config/shared.rb", "tag 'shared'\nnonsense 1")
    problem = only_problem("load 'config/shared.rb'\nworkers 1")
    assert_equal "config/shared.rb:2: nonsense is not an option of the configuration", problem.to_s
    assert_match(%r{config/chaton.rb:1: config/none.rb cannot be read}, only_problem("load 'config/none.rb'").to_s)
    assert_match(/config.chaton.rb loads itself/, only_problem("load __FILE__").to_s)
  end

  def test_a_file_that_is_not_ruby
    problem = only_problem("workers 1\nthreads 1..\n  )\n")
    assert_equal 3, problem.line
    assert_match(/this is not valid Ruby/, problem.message)
  end

  def test_a_file_that_raises
    assert_equal "config/chaton.rb:2: RuntimeError: no luck", only_problem("workers 1\nraise 'no luck'").to_s
  end

  def test_options_in_the_wrong_place
    assert_match(/write web \{ header_bytes_max … \}/, only_problem("header_bytes_max 1").message)
    assert_match(/write web \{ queue limit: … \}/, only_problem("web { queue_limit 1 }").message)
    assert_match(/write workers outside of the block/, only_problem("web { workers 1 }").message)
    assert_match(/queue takes limit:/, only_problem("web { queue 5 }").message)
    assert_match(/web needs a block/, only_problem("web true").message)
    assert_match(/before_fork needs a block/, only_problem("before_fork").message)
    assert_match(/takes one value, not 2/, only_problem("tag 'a', 'b'").message)
  end
end
