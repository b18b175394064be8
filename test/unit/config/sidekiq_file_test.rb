# frozen_string_literal: true

require_relative "config_case"

class SidekiqFileTest < ConfigCase
  def file(text, given = { jobs: true })
    write("config/sidekiq.yml", text)
    load(given)
  end

  def wrong(text)
    assert_raises(Chaton::Config::Invalid) { file(text) }.message
  end

  def test_keys_of_the_file_become_settings
    @env["REDIS_URL"] = "redis://127.0.0.1:6379/1"
    plan = file(<<~YAML, { jobs: true, environment: "production" })
      :concurrency: <%= 2 + 3 %>
      timeout: 30
      :max_retries: 4
      labels: [blue]
      :queues:
        - [critical, 2]
        - default
      production:
        :concurrency: 20
      staging:
        concurrency: 1
    YAML
    jobs = plan.jobs
    own = plan.of_process([:jobs])
    assert_equal [1, 20, 30.0], [own.threads_min, own.threads_max, own.shutdown_timeout_s]
    assert_equal ["weighted", [["critical", 2], ["default", 1]], 4, ["blue"]],
                 [jobs.mode, jobs.queues, jobs.retries_max, jobs.labels]
    assert_equal ["redis://127.0.0.1:6379/1", "#{@root}/config/sidekiq.yml"], [jobs.store, jobs.sidekiq_file]
    assert_empty plan.notes
  end

  def test_strict_order
    assert_equal "strict", file("queues: [a, b]").jobs.mode
    jobs = file("strict: true\nqueues: [[a, 2], [b, 1]]").jobs
    assert_equal ["strict", [["a", 1], ["b", 1]]], [jobs.mode, jobs.queues]
  end

  def test_everything_else_goes_before_it
    @env["REDIS_URL"] = "redis://127.0.0.1:6379/1"
    write("config/chaton.rb", "jobs { queues 'mine'; threads 3; store 'redis://127.0.0.1/7' }")
    plan = file("queues: [theirs]\nconcurrency: 9\nmax_retries: 1", {})
    assert_equal ["redis://127.0.0.1/7", [["mine", 1]], 3, 1],
                 [plan.jobs.store, plan.jobs.queues, plan.of_process([:jobs]).threads_max, plan.jobs.retries_max]
  end

  def test_which_variable_names_redis
    @env.update("REDIS_PROVIDER" => "MY_REDIS", "MY_REDIS" => "redis://127.0.0.1/5", "REDIS_URL" => "redis://127.0.0.1")
    assert_equal "redis://127.0.0.1/5", file("").jobs.store
    @env.clear
    assert_match(/no REDIS_URL in the environment.*storage.chaton_development.db/, file("").notes.join)
    @env["REDIS_URL"] = "http://x"
    assert_match(/environment variable REDIS_URL: store must be/, wrong(""))
  end

  def test_redis_is_not_taken_from_the_environment_without_it
    @env["REDIS_URL"] = "redis://127.0.0.1/1"
    assert_match(/sqlite/, load({ jobs: true }).jobs.store)
  end

  def test_keys_that_are_not_read_are_named
    @env["REDIS_URL"] = "redis://127.0.0.1/1"
    notes = file("verbose: true\nconcurency: 3\nscheduler:\n  schedule: {}\npidfile: x").notes
    assert_equal ["config/sidekiq.yml: verbose is not read: use log_level",
                  "config/sidekiq.yml: concurency is not read: did you mean concurrency?",
                  "config/sidekiq.yml: scheduler is not read", "config/sidekiq.yml: pidfile is not read: use pidfile"],
                 notes
  end

  def test_a_file_that_cannot_be_read
    assert_match(/config.sidekiq.yml: cannot be read: .*Psych/, wrong("a: [\n"))
    assert_match(/must contain keys, not Array/, wrong("- 1"))
    assert_match(/cannot be read: .*NameError/, wrong("<%= nonsense %>"))
    assert_match(/config.sidekiq.yml: concurrency a minimum|concurrency must be/, wrong("concurrency: lots"))
    assert_match(/queues must be/, wrong("queues: {a: x}"))
    write("config/chaton.rb", "jobs { sidekiq_yml 'none.yml' }")
    assert_match(/none.yml: there is no such file/, assert_raises(Chaton::Config::Invalid) { load }.message)
  end

  def test_it_can_be_left_unread
    write("config/chaton.rb", "jobs { sidekiq_file false }")
    plan = file("queues: [theirs]", {})
    assert_equal [[["default", 1]], nil], [plan.jobs.queues, plan.jobs.sidekiq_file]
    FileUtils.rm(File.join(@root, "config/chaton.rb"))
    assert_nil file("queues: [theirs]", {}).jobs, "without the role jobs it is nobody's business"
  end
end
