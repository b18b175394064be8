# frozen_string_literal: true

require_relative "config_case"

class JobsConfigTest < ConfigCase
  def jobs(text, given = {}) = plan("jobs do\n#{text}\nend", given).jobs

  def refused(line) = only_problem("jobs do\n#{line}\nend").to_s

  def test_without_a_jobs_section_there_are_no_jobs
    assert_nil load.jobs
    assert_equal [:web], load.roles
  end

  def test_defaults
    jobs = jobs("")
    assert_equal ["sqlite://#{@root}/storage/chaton_development.db", true, 60.0, 10_000],
                 [jobs.store, *jobs.store_settings.values_at(:durable, :lease_s, :dead_max)]
    assert_equal [[["default", 1]], "strict", [], [], nil],
                 [jobs.queues, jobs.mode, jobs.load, jobs.crons, jobs.retries_max]
    assert_equal [0.005, 1000, 0.002, 3.0], [jobs.prefetch_s, jobs.prefetch_max, jobs.ack_delay_s, jobs.beat_s]
    assert_equal 0.0, jobs.catch_up_s, "in development"
    assert_equal "#{@root}/storage/chaton_development.db", jobs.store_file
  end

  def test_each_environment_has_a_store
    assert_equal "#{@root}/storage/chaton_production.db", plan("jobs { }", environment: "production").jobs.store_file
    assert_equal "#{@root}/storage/chaton_test.db", plan("jobs { }", environment: "test").jobs.store_file
  end

  def test_reliable_push_is_off_or_a_number_of_bytes
    of = ->(line) { jobs(line).store_settings.values_at(:reliable_push, :reliable_push_timeout_s) }
    assert_equal [nil, 2.0], of.call("")
    assert_equal [10 << 20, 2.0], of.call("reliable_push \"10 MB\"")
    assert_match(/reliable_push must be none, or bytes from 64 KiB to 1 GiB/, refused("reliable_push 10"))
  end

  def test_queues_in_their_three_forms
    { 'queues "critical", "default"' => ["strict", [["critical", 1], ["default", 1]]],
      "queues critical: 3, default: 1" => ["weighted", [["critical", 3], ["default", 1]]],
      "queues random: %w[a b]" => ["random", [["a", 1], ["b", 1]]],
      "queues random: 2, b: 1" => ["weighted", [["random", 2], ["b", 1]]],
      "queues %w[a b]" => ["strict", [["a", 1], ["b", 1]]],
      'queues ["a", 2], "b"' => ["weighted", [["a", 2], ["b", 1]]] }.each do |line, expected|
      assert_equal expected, jobs(line).then { |found| [found.mode, found.queues] }, line
    end
  end

  def test_queues_that_make_no_sense
    assert_match(/queues name "a" twice; give it a weight instead: a: 2/, refused('queues "a", "a"'))
    assert_match(/"a b" is not a name of a queue/, refused('queues "a b"'))
    assert_match(/"many" is not a weight/, refused('queues a: "many"'))
    assert_match(/queues takes 1 to 1000 values, not 0/, refused("queues"))
  end

  def test_the_store_is_the_database_of_rails
    write("config/database.yml", <<~YAML)
      default: &default
        adapter: postgresql
        username: app
        password: <%= "p@ss/word" %>
      development:
        primary:
          <<: *default
          host: db.internal
          port: 5433
          database: app_dev
          sslmode: verify-full
          sslrootcert: /a ca.pem
        cache:
          <<: *default
          database: cache
      test:
        adapter: postgresql
        database: app_test
        host: /run/postgresql
      production:
        url: postgresql://app@db/app
      old:
        adapter: sqlite3
        database: storage/app.sqlite3
    YAML
    of = ->(environment) { plan("jobs { store :active_record }", environment: environment).jobs }
    assert_equal "postgres://app:p%40ss%2Fword@db.internal:5433/app_dev?sslmode=verify-full&sslrootcert=%2Fa%20ca.pem",
                 of["development"].store
    assert_in_delta 15.0, of["development"].store_settings[:lease_s]
    refute_match(/word/, of["development"].inspect)
    assert_equal "postgres:///app_test?host=%2Frun%2Fpostgresql", of["test"].store
    assert_equal "postgres://app@db/app", of["production"].store
    assert_match(/adapter is "sqlite3"/, assert_raises(Chaton::ConfigError) { of["old"] }.message)
    assert_match(/no entry for the environment staging/, assert_raises(Chaton::ConfigError) { of["staging"] }.message)
  end

  def test_the_store_is_the_database_of_the_environment_variable
    of = ->(url) { Chaton::Config::DatabaseEntry.new(@root, "test", env: { "DATABASE_URL" => url }).url }
    assert_equal "postgres://app:x@db/app?pool=5", of["postgis://app:x@db/app?pool=5"]
    assert_match(/DATABASE_URL is not set/, assert_raises(Chaton::ConfigError) { of[""] }.message)
    assert_match(/scheme is "mysql2"/, assert_raises(Chaton::ConfigError) { of["mysql2://db/app"] }.message)
  end

  def test_an_address_for_listening_is_not_printed
    plan = plan("jobs { store \"postgres://b:6432/app\"; listen \"postgres://me:secret@db/app\" }")
    assert_equal "postgres://me:secret@db/app", plan.jobs.store_settings[:listen]
    refute_match(/secret/, plan.to_h.inspect)
  end

  def test_addresses_of_stores
    assert_equal "redis://127.0.0.1:6379/0", jobs('store "redis://127.0.0.1:6379/0"').store
    assert_nil jobs('store "redis://127.0.0.1:6379/0"').store_file
    assert_match(/write redis:/, refused('store "valkey://127.0.0.1"'))
    assert_match(/must be sqlite:/, refused('store "memory://test"'))
    assert_match(%r{write sqlite://db/jobs.db}, refused('store "db/jobs.db"'))
    refute_match(/secret/, refused('store "http://me:secret@host"'))
    FileUtils.rm(File.join(@root, "config/chaton.rb"))
    @env["CHATON_STORE"] = "redis://127.0.0.1/3"
    assert_equal "redis://127.0.0.1/3", load.jobs.store
    assert_equal [:web], load.roles, "an address alone runs no jobs"
    assert_equal "sqlite:///srv/jobs.db", load({ store: "sqlite:///srv/jobs.db" }).jobs.store
  end

  def test_a_password_is_never_shown
    plan = plan('jobs { store "redis+sentinel://me:secret1@127.0.0.1/a"; password "secret2"; ' \
                'sentinel_password "secret3" }')
    assert_equal %w[secret2 secret3], plan.jobs.store_settings.values_at(:password, :sentinel_password)
    shown = [plan.to_h.inspect, plan.jobs.inspect, plan.jobs.store_shown].join
    refute_match(/secret/, shown)
    assert_match(/\*\*\*@127/, shown)
    @env["CHATON_STORE_PASSWORD"] = "from outside"
    @env["CHATON_STORE_SENTINEL_PASSWORD"] = "from outside, too"
    assert_equal ["from outside", "from outside, too"],
                 jobs("").store_settings.values_at(:password, :sentinel_password)
  end

  def test_crons
    jobs = jobs('cron "a", "*/5 * * * *", "A::B", zone: "Europe/Berlin", args: [1], queue: "low"' \
                "\ncron :b, '@daily', :C")
    assert_equal [["a", "*/5 * * * *", "A::B", "Europe/Berlin", [1], "low"], ["b", "0 0 * * *", "C", "UTC", [], nil]],
                 jobs.crons.map(&:to_a)
  end

  def test_expressions
    ["* * * * *", "*/30 * * * * *", "0 3 L * *", "0 3 15W jan-mar,dec *", "5,10-20/2 1-3 * * mon-fri", "0 0 * * fri#2",
     "0 0 * * 5L", "0 0 * * 7"].each do |expression|
      assert_equal expression, jobs("cron 'a', #{expression.inspect}, 'A'").crons.first.expression
    end
  end

  def test_crons_that_make_no_sense
    { 'cron "a", "* * * *", "A"' => /needs five fields/, 'cron "a", "60 * * * *", "A"' => /whose minute "60"/,
      'cron "a", "* * * * mon-9", "A"' => /whose weekday/, 'cron "a", "*/0 * * * *", "A"' => /whose minute/,
      'cron "a", "@never", "A"' => /needs five fields/, 'cron "a", "* * * * *", "a"' => /name of a job class/,
      'cron "a", "* * * * *", "A", zone: "Europe/Berln"' => /not a time zone/,
      'cron "a", "* * * * *", "A", args: [:x]' => /JSON cannot represent/,
      'cron "a", "* * * * *", "A", quue: "x"' => /has no quue:; there are zone:, args:, queue:/,
      'cron "a b", "* * * * *", "A"' => /needs a name without spaces/,
      "cron 'a', '* * * * *', 'A'\ncron 'a', '@daily', 'B'" => /cron "a" is defined twice/ }.each do |line, expected|
      assert_match expected, refused(line), line
    end
  end

  def test_misspelt_and_misplaced
    assert_match(/quues is not an option of jobs; did you mean queues/, refused("quues 1"))
    assert_match(/write workers outside of the block/, refused("workers 1"))
    assert_match(/write jobs \{ lease_s … \}/, only_problem("lease_s 1").to_s)
    assert_match(/jobs needs a block/, only_problem("jobs true").to_s)
  end

  def test_an_application_may_set_the_lease_with_its_store
    given = { store: "redis://h/1", lease_s: 30 }
    assert_equal({ store: "redis://h/1", lease_s: 30.0 }, Chaton::Config.check(:jobs, given))
  end

  def test_the_lease_is_shorter_on_redis
    assert_in_delta 15.0, jobs("store \"redis://h/1\"").store_settings[:lease_s]
    assert_in_delta 7.0, jobs("store \"redis://h/1\"\nlease 7").store_settings[:lease_s]
    assert_in_delta 60.0, jobs("store \"sqlite://jobs.db\"").store_settings[:lease_s]
    { "lease 60" => 3.0, "store \"redis://h/1\"" => 3.0, "lease 5" => 1.0 }.each do |lines, beat_s|
      assert_in_delta beat_s, jobs(lines).beat_s
    end
  end

  def test_the_format_is_that_of_the_bundle
    assert_equal [8, 8], [jobs("format 8").format, jobs("format 8").store_settings[:format]]
    { "6.4.1" => 6, "5.2.0" => 6, "8.0.1" => 8, "9.0.0" => 8 }.each do |version, format|
      write("Gemfile.lock", "GEM\n  specs:\n    sidekiq (#{version})\n      rack (~> 2.0)\n")
      assert_equal format, Gem.stub(:loaded_specs, {}) { jobs("").format }, version
    end
    write("Gemfile.lock", "GEM\n  specs:\n    sidekiq-cron (1.0)\n      sidekiq (>= 4.2.1)\n")
    assert_equal 7, Gem.stub(:loaded_specs, {}) { jobs("").format }
  end
end
