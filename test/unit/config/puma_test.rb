# frozen_string_literal: true

require_relative "config_case"

# A config/puma.rb means here what it means there, or is refused with what to write instead.
class PumaTest < ConfigCase
  # What `rails new` has written, without its comments.
  RAILS = {
    "5.2" => <<~RUBY,
      threads_count = ENV.fetch("RAILS_MAX_THREADS_OF_TEST") { 5 }
      threads threads_count, threads_count
      port        ENV.fetch("PORT_OF_TEST") { 3000 }
      environment ENV.fetch("RAILS_ENV_OF_TEST") { "production" }
      pidfile ENV.fetch("PIDFILE_OF_TEST") { "tmp/pids/server.pid" }
      plugin :tmp_restart
    RUBY
    "6.1" => <<~RUBY,
      max_threads_count = ENV.fetch("RAILS_MAX_THREADS_OF_TEST") { 5 }
      min_threads_count = ENV.fetch("RAILS_MIN_THREADS_OF_TEST") { max_threads_count }
      threads min_threads_count, max_threads_count
      worker_timeout 3600 if ENV.fetch("RAILS_ENV_OF_TEST", "development") == "development"
      port ENV.fetch("PORT_OF_TEST") { 3000 }
      environment ENV.fetch("RAILS_ENV_OF_TEST") { "development" }
      pidfile ENV.fetch("PIDFILE_OF_TEST") { "tmp/pids/server.pid" }
      plugin :tmp_restart
    RUBY
    "7.1" => <<~RUBY,
      max_threads_count = ENV.fetch("RAILS_MAX_THREADS_OF_TEST") { 5 }
      min_threads_count = ENV.fetch("RAILS_MIN_THREADS_OF_TEST") { max_threads_count }
      threads min_threads_count, max_threads_count
      rails_env = ENV.fetch("RAILS_ENV_OF_TEST") { "development" }
      if rails_env == "production"
        require "concurrent-ruby"
        worker_count = Integer(ENV.fetch("WEB_CONCURRENCY_OF_TEST") { Concurrent.physical_processor_count })
        if worker_count > 1
          workers worker_count
        else
          preload_app!
        end
      end
      worker_timeout 3600 if ENV.fetch("RAILS_ENV_OF_TEST", "development") == "development"
      port ENV.fetch("PORT_OF_TEST") { 3000 }
      environment rails_env
      pidfile ENV.fetch("PIDFILE_OF_TEST") { "tmp/pids/server.pid" }
      plugin :tmp_restart
    RUBY
    "7.2" => <<~RUBY,
      threads_count = ENV.fetch("RAILS_MAX_THREADS_OF_TEST", 5)
      threads threads_count, threads_count
      port ENV.fetch("PORT_OF_TEST", 3000)
      plugin :tmp_restart
      pidfile ENV["PIDFILE_OF_TEST"] if ENV["PIDFILE_OF_TEST"]
    RUBY
    "8.0" => <<~RUBY,
      threads_count = ENV.fetch("RAILS_MAX_THREADS_OF_TEST", 5)
      threads threads_count, threads_count
      port ENV.fetch("PORT_OF_TEST", 3000)
      plugin :tmp_restart
      plugin :solid_queue if ENV["SOLID_QUEUE_IN_PUMA_OF_TEST"]
      pidfile ENV["PIDFILE_OF_TEST"] if ENV["PIDFILE_OF_TEST"]
    RUBY
    "8.2" => <<~RUBY
      threads ENV.fetch("RAILS_MAX_THREADS_OF_TEST", 5)
      port ENV.fetch("PORT_OF_TEST", 3000)
      plugin :tmp_restart
      plugin :solid_queue if ![ "", "false", "0" ].include?(ENV["SOLID_QUEUE_IN_PUMA_OF_TEST"].to_s.downcase)
      pidfile ENV["PIDFILE_OF_TEST"] if ENV["PIDFILE_OF_TEST"]
    RUBY
  }.freeze

  RAILS.each do |version, text|
    define_method("test_the_file_of_rails_#{version.tr(".", "_")}") do
      write("config/puma.rb", text)
      plan = load
      assert_equal ["tcp://0.0.0.0:3000", 5, 5, true],
                   [plan.binds.join, plan.threads_min, plan.threads_max, plan.threads_max_given?]
      assert_empty plan.notes
      assert_equal File.join(@root, "tmp/restart.txt"), plan.restart_file
      assert_equal File.join(@root, "tmp/pids/server.pid"), plan.pidfile if %w[5.2 6.1 7.1].include?(version)
      assert_equal 3600.0, plan.alive_timeout_s if %w[6.1 7.1].include?(version)
    end
  end

  def test_ssl_bind_is_a_bind_with_tls
    plan = plan(<<~RUBY)
      ssl_bind "127.0.0.1", "9292", { cert: "/a.pem", key: "/a.key", ca: "/ca.pem", verify_mode: "peer" }
      bind "ssl://127.0.0.1:9293?cert=/b.pem&key=/b.key&verify_mode=none"
    RUBY
    assert_equal %w[https://127.0.0.1:9292 https://127.0.0.1:9293], plan.binds.map(&:to_s)
    assert_equal [[%w[/a.pem /a.key]], "/ca.pem", "peer"],
                 plan.binds.first.tls.to_h.values_at(:certificates, :ca, :verify_mode)
    assert_equal [[%w[/b.pem /b.key]], nil, "none"],
                 plan.binds.last.tls.to_h.values_at(:certificates, :ca, :verify_mode)
  end

  def test_lines_with_the_same_meaning
    plan = plan(<<~RUBY)
      workers 2
      preload_app! false
      worker_timeout 30
      worker_boot_timeout 40
      worker_shutdown_timeout 10
      persistent_timeout 20
      first_data_timeout 15
      http_content_length_limit 1024
      log_requests
      early_hints
      queue_requests true
    RUBY
    assert_equal [2, false, 30.0, 40.0, 10.0],
                 [plan.workers, plan.preload?, plan.alive_timeout_s, plan.boot_timeout_s, plan.shutdown_timeout_s]
    assert_equal [20.0, 15.0, 1024, true],
                 plan.web.to_h.values_at(:idle_timeout_s, :header_timeout_s, :body_bytes_max, :early_hints)
    assert_equal :common, plan.web.access_log
    assert_empty plan.notes
  end

  def test_lines_that_need_no_effect_are_noted
    Chaton::Config::PumaLines::ACCEPTED.each do |name, why|
      assert_equal ["config/chaton.rb:1: #{name} has no effect: #{why}"], plan("#{name} 1").notes
    end
  end

  def test_lines_only_puma_supports_are_refused_with_an_alternative
    Chaton::Config::PumaLines::REFUSED.each do |name, instead|
      assert_equal "config/chaton.rb:1: #{name} is supported only by Puma: #{instead}", only_problem("#{name} { }").to_s
    end
  end

  def test_lines_with_the_value_that_always_applies_are_accepted
    assert_empty problems("queue_requests\nclean_thread_locals false\nset_remote_address :socket\n" \
                          "allow_underscore_headers")
    assert_match(/clean_thread_locals true is supported only by Puma/, only_problem("clean_thread_locals").message)
    assert_match(/allow_underscore_headers false is supported only by Puma: let the proxy/,
                 only_problem("allow_underscore_headers false").message)
    assert_match(/queue_requests false is supported only by Puma/, only_problem("queue_requests false").message)
  end

  def test_plugins
    assert_match(/plugin :other is supported only by Puma: .*service "NAME", "COMMAND"/,
                 only_problem("plugin 'other'").message)
    assert_equal ["config/chaton.rb:1: plugin :solid_queue has no effect: the bundle has no gem solid_queue"],
                 plan("plugin :solid_queue").notes
    write("Gemfile.lock", "GEM\n  specs:\n    solid_queue (1.1.0)\n      activejob (>= 7.1)\n")
    plan = plan("plugin :solid_queue")
    assert_equal [["solid_queue", %w[bin/rails solid_queue:start]]],
                 (plan.services.map { |line| [line.name, line.command] })
    assert_equal ["config/chaton.rb:1: plugin :solid_queue: `bin/rails solid_queue:start` runs as a service"],
                 plan.notes
  end

  def test_hooks_under_the_names_of_puma
    plan = plan("after_booted { }\non_booted { }\nafter_stopped { }\nbefore_restart { }\nbefore_worker_boot { }\n")
    assert_equal [2, 1, 1, 1],
                 plan.hooks.values_at(:after_booted, :after_stopped, :on_restart, :on_worker_boot).map(&:size)
  end

  # No option of the installed Puma is met with "not an option".
  def test_every_line_of_puma_is_known
    needs_gems "nio4r", "puma"
    require "puma"
    require "puma/configuration"
    # What its own code calls, not what a file says.
    internal = %i[_load_from _offer_plugins inject get add_pem_values_to_options_store default_host]
    lines = Puma::DSL.public_instance_methods(false) - internal
    known = Chaton::Config::DSL.public_instance_methods
    assert_empty lines - known
  end
end
