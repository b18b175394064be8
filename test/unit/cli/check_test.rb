# frozen_string_literal: true

require_relative "cli_case"
require "json"
require "open3"

class CheckTest < CLICase
  def test_a_plan_for_people
    status, text, errors = chaton("check", "-w", "2", "-e", "production", "-C", "-")
    assert_equal [0, ""], [status, errors]
    assert_match(/^  workers +2$/, text)
    assert_match(%r{^  application +#{@root}/config.ru$}, text)
    refute_match(/request_timeout_s/, text)
    assert_match(/^  believed +anybody: the application gets X-Forwarded-… as clients send it$/, text)
    assert_match(/^\d+ settings have their default; --all shows them\.$/, text)
    text = chaton("check", "-w", "2", "-e", "production", "-C", "-", "--all")[1]
    assert_match(/^  request_timeout_s +60$/, text)
    elsewhere = %i[jobs streams topic admin traces]
    options = Chaton::Config::Options::ALL.reject { |one| one.group == :server || elsewhere.include?(one.scope) }
    options.each { |option| assert_match(/^  #{option.written} /, text) }
  end

  def test_the_last_line_is_the_verdict
    assert_equal "the configuration is valid\n", chaton("check", "-C", "-")[1].lines.last
    refute_match(/the configuration is valid/, chaton("check", "-C", "-t", "0")[1])
  end

  def test_a_cable_that_reaches_one_process_only_is_a_note
    FileUtils.mkdir_p("config")
    File.write("config/cable.yml", "production:\n  adapter: async\n")
    File.write("config.ru", <<~RUBY)
      require "action_cable/engine"
      ActionCable.server.config.cable = YAML.load_file("config/cable.yml").fetch(ENV["RACK_ENV"])
      #{APP}
    RUBY
    note = /adapter async, with which a broadcast reaches only .* 2 workers: use redis, solid_cable or postgresql$/
    assert_match(note, in_process("check", "-e", "production", "-w", "2"))
    refute_match(/adapter async/, in_process("check", "-e", "production", "-w", "1"))
  end

  def test_a_file_of_sidekiq_that_is_not_read_is_a_note
    FileUtils.mkdir_p("config")
    File.write("config/sidekiq.yml", "concurrency: 3\n")
    note = "config/sidekiq.yml is not read, because no jobs run here; it is with --jobs, or "
    assert_includes chaton("check", "-C", "-")[1], "  #{note}"
    refute_includes chaton("check", "-C", "-", "--jobs", "-e", "test")[1], note
    FileUtils.rm("config/sidekiq.yml")
    refute_includes chaton("check", "-C", "-")[1], note
  end

  def test_streams_in_the_report
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", <<~RUBY)
      streams do
        broker "kafka://127.0.0.1:9092"
        username "app"
        password "secret"
        kafka "client.rack" => "a"
        retention 60.0
        session_timeout 6.0
        topic "events", "String", group: "app", retries: 2, dead_letter: "events.dead"
        topic "audit"
      end
    RUBY
    text = chaton("check", "-e", "production", "--no-streams")[1]
    of_streams = Chaton::Config::Options.in(:streams)
    of_streams.each { |option| assert_match(/^  #{option.written} /, text) }
    { "broker" => "kafka://127.0.0.1:9092", "password" => "given", "kafka" => "client.rack",
      "retention_s" => "60", "session_timeout_s" => "6", "threads" => "as outside",
      "topic audit" => "no consumer",
      "topic events" => "String, group app, retries 2, dead_letter events.dead" }.each do |name, value|
      assert_match(/^  #{name} +#{Regexp.escape(value)}$/, text)
    end
    refute_includes text, "secret"
  end

  def test_a_plan_for_programs
    plan = JSON.parse(chaton("check", "--json", "-b", "tcp://127.0.0.1:1")[1])
    assert_equal [["tcp://127.0.0.1:1"], 0], plan.values_at("binds", "workers")
  end

  def test_what_is_off_in_a_ruby_that_was_never_tried_is_a_note
    text = in_ruby("9.9.0", "CHATON_UNTRIED_RUBY" => nil) { chaton("check")[1] }
    assert_match(/^Notes\n.*  Ruby 9.9.0 is newer than .*CHATON_UNTRIED_RUBY=1 switches them on$/m, text)
  end

  def test_threads_that_share_native_threads_are_refused_on_ruby_33
    status, out, errors = in_ruby("3.3.8", "RUBY_MN_THREADS" => "1") { chaton("check") }
    assert_equal [1, ""], [status, out]
    assert_match(/\Achaton: RUBY_MN_THREADS=1 cannot be used with Ruby 3.3.8: /, errors)
  end

  def test_an_application_that_does_not_load
    File.write("config.ru", "run Nonsense\n")
    status, out, errors = chaton("check")
    assert_equal [1, ""], [status, out]
    assert_match(%r{\Achaton: .*#{@root}/config.ru}, errors)
    assert_match(/Nonsense/, errors)
    assert_match(/^  at config.ru:1$/, errors)
  end

  def test_memory_settings_in_the_report
    text = chaton("check", "-e", "production", "-C", "-")[1]
    assert_match(/^At the start\n  allocator: \S+/, text)
    reading = { ruby: RUBY_VERSION, live_slots: 450_000, old_objects: 1, pools: [[40, 450_000]] }
    Dir.mkdir("tmp")
    Chaton::Memory::HeapCache.new(root: @root, work: "web").write(reading)
    ENV["RUBY_GC_MALLOC_LIMIT"] = "17000000"
    assert_match(/^At the start\n  allocator and heap sizes are unchanged: a single process in dev.*\n\n/,
                 chaton("check", "-e", "development", "-C", "-")[1])
    text = chaton("check", "-e", "production", "-C", "-")[1]
    assert_match(/heap: sized by the last start, \d seconds ago\n    eden 4.0 MiB: to begin with/, text)
    assert_match(/^    RUBY_GC_MALLOC_LIMIT_MAX=\d+$/, text)
    assert_match(/left as you set them: RUBY_GC_MALLOC_LIMIT$/, text)
    launch = JSON.parse(chaton("check", "--json", "-C", "-", "-e", "development")[1]).fetch("launch")
    assert_equal ["a single process in development is not executed again", ["RUBY_GC_MALLOC_LIMIT"]],
                 launch.values_at("refusal", "left_alone")
    assert_includes launch["variables"], "RUBY_GC_MALLOC_LIMIT_MAX"
  end

  def test_why_no_thread_is_bound_to_a_core
    check = ->(*given) { in_ruby("3.1.2") { chaton("check", "-e", "production", *given)[1] } }
    assert_match(/^  cpu_affinity has no effect: Ruby \S+ does not tell which thread has its lock, as 3.3 does$/,
                 check["-C", "-"])
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", "cpu_affinity false")
    refute_match(/cpu_affinity has no effect/, check[])
  end

  def test_notes_are_shown
    FileUtils.mkdir_p("config")
    File.write("config/puma.rb", "plugin :systemd")
    assert_match(%r{\ANotes\n  config/puma.rb:1: plugin :systemd}, chaton("check")[1])
  end

  def test_another_file_than_config_ru
    File.rename("config.ru", "other.ru")
    assert_equal 0, chaton("check", "other.ru")[0]
    assert_match(/one argument too many: more.ru/, chaton("check", "other.ru", "more.ru")[2])
  end

  private

  # In a process of its own, for code that changes all of it.
  #
  # @return [String] output and errors
  def in_process(*argv)
    lib = File.expand_path("../../../lib", __dir__)
    Open3.capture2e(RbConfig.ruby, "-I", lib, "-e", "require 'chaton/cli'; exit Chaton::CLI.start(ARGV)", "--", *argv)
      .first
  end

  def in_ruby(version, env = {})
    before = ENV.to_h.slice(*env.keys)
    ENV.update(env)
    Chaton::RubyRelease.const_set(:RUBY_VERSION, version)
    yield
  ensure
    Chaton::RubyRelease.send(:remove_const, :RUBY_VERSION)
    ENV.update(env.to_h { |name, _| [name, before[name]] })
  end
end
