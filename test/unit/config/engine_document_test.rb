# frozen_string_literal: true

require "test_helper"
require "json"
require "chaton/config"
require "chaton/native"

# The settings of a process on their way to the native extension.
class EngineDocumentTest < Minitest::Test
  def plan = Chaton::Config.load({ config_file: "-" }, env: {})

  def document = JSON.parse(plan.engine_document(roles: [:web], slot: 0), symbolize_names: true)

  def refused(document)
    scoreboard = Chaton::Native::Scoreboard.new(1)
    assert_raises(ArgumentError) { Chaton::Native::Pool.new(JSON.generate(document), scoreboard, nil) }.message
  end

  def refused_by_web(document)
    pool = Chaton::Native::Pool.new(JSON.generate(document), Chaton::Native::Scoreboard.new(1), nil)
    assert_raises(ArgumentError) { Chaton::Native::Web.start(pool, [], []) }.message
  ensure
    pool&.shut
  end

  def test_the_sections_are_the_pool_and_those_of_the_roles
    assert_equal %i[pool memory web], document.keys
    assert_equal [1024, 64 << 20, 15.0], document[:web][:queue].values_at(:limit, :bytes, :age)
    assert_equal plan.shutdown_timeout_s + 5, document[:pool][:orphan_exit_s]
  end

  def test_paths_whose_bodies_are_streamed_are_one_list
    assert_equal [], document[:web][:stream_bodies]
    changed = plan
    changed = changed.with(web: changed.web.dup.tap { |web| web[:stream_bodies] = [["/a", "/b/*"], ["/c"]] })
    web = JSON.parse(changed.engine_document(roles: [:web], slot: 0))["web"]
    assert_equal %w[/a /b/* /c], web["stream_bodies"]
  end

  def test_jobs_have_their_store_with_its_password
    plan = Chaton::Config.load({ config_file: "-", store: "redis://h/1", password: "hush" }, env: {})
    jobs = JSON.parse(plan.engine_document(roles: [:jobs], slot: 0), symbolize_names: true)[:jobs]
    assert_equal ["redis://h/1", "hush", 15.0], jobs[:store].values_at(:url, :password, :lease_s)
    assert_equal [[["default", 1]], "strict", Chaton::VERSION], jobs.values_at(:queues, :mode, :version)
  end

  def test_lines_about_jobs_have_the_level_of_the_log
    log = lambda do |**given|
      plan = Chaton::Config.load({ config_file: "-", store: "redis://h/1", **given }, env: {})
      JSON.parse(plan.engine_document(roles: [:jobs], slot: 0), symbolize_names: true).dig(:jobs, :log)
    end
    assert_equal({ per_s: 1000, info: true }, log.call)
    assert_equal({ per_s: 1000, info: false }, log.call(log_level: "warn"))
  end

  def test_the_growth_before_a_full_collection_is_left_to_ruby_where_ruby_collects
    assert_equal 1.0, document[:memory][:longlife]
    plan = self.plan
    off = plan.with(memory: plan.memory.dup.tap { |memory| memory.collect = :off })
    assert_nil JSON.parse(off.engine_document(roles: [], slot: 0)).dig("memory", "longlife")
  end

  def test_a_missing_field_is_named_with_its_path
    pool = document[:pool].except(:stall_ms)
    assert_equal "settings: pool.stall_ms: missing field", refused({ pool: pool })
    assert_equal "settings: pool: missing section", refused({})
    web = document[:web]
    web = { **web, limits: web[:limits].except(:uri_bytes_max) }
    assert_equal "settings: web.limits.uri_bytes_max: missing field", refused_by_web({ **document, web: web })
  end

  def test_an_unknown_field_is_named_with_its_path
    assert_match(/\Asettings: pool\.stall_s: unknown field, expected/,
                 refused({ pool: { stall_s: 1, **document[:pool] } }))
    web = { **document[:web], queue: { **document[:web][:queue], byte: 1 } }
    assert_match(/\Asettings: web\.queue\.byte: unknown field/, refused_by_web({ **document, web: web }))
  end

  def test_a_wrong_value_is_named_with_its_path
    assert_match(/\Asettings: pool\.threads_max: invalid type: string "many", expected usize/,
                 refused({ pool: { **document[:pool], threads_max: "many" } }))
    assert_match(/\Asettings: pool\.preempt_ms: .*negative/, refused({ pool: { **document[:pool], preempt_ms: -1 } }))
    web = document[:web]
    web = { **web, timeouts: { **web[:timeouts], idle_timeout_s: "a, b: {" } }
    assert_match(/\Asettings: web\.timeouts\.idle_timeout_s: invalid type/, refused_by_web({ **document, web: web }))
  end
end
