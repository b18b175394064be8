# frozen_string_literal: true

require "test_helper"
require "support/jobs_test_case"

# What an application sets in Sidekiq's initializer, with the gem loaded.
class JobsSidekiqBootTest < Minitest::Test
  include JobsTest

  PLAIN = <<~RUBY
    require "sidekiq"
    class Plain
      include Sidekiq::Worker
      sidekiq_options queue: "low"
      def perform(id) = Recorder.note(id)
    end
  RUBY

  def setup
    needs_gems "sidekiq"
    super
  end

  def kind = :redis

  def time_limit_s = 90

  def test_queues_that_the_initializer_names_are_run
    server = boot_jobs(<<~RUBY, env: env)
      #{PLAIN}
      Sidekiq.configure_server do |config|
        queues = %w[low high high]
        config.respond_to?(:queues=) ? config.queues = queues : config.options[:queues] = queues
      end
    RUBY
    server.wait_line(/jobs are run .*queues=low,high/)
    console(server, env: env).run('Plain.perform_async("a")')
    server.eventually("it ran") { server.record.ids == ["a"] }
    assert_equal 0, server.stop
  end

  def test_events_fire_in_sidekiqs_order
    server = boot_jobs(<<~RUBY, env: env)
      #{PLAIN}
      %i[startup heartbeat beat quiet shutdown exit].each do |event|
        Chaton::Jobs.setup.on(event) { Recorder.note(event) }
      end
      Sidekiq.configure_server { |config| config.on(:heartbeat) { Recorder.note("heartbeat", "gem") } }
    RUBY
    server.eventually("beat") { server.record.of("beat").any? }
    assert_equal 0, server.stop
    assert_equal %w[startup heartbeat beat quiet shutdown exit], server.record.ids.uniq
    assert_equal ["heartbeat"], server.record.ids("gem")
  end

  def test_gems_whose_schedules_do_not_fire_are_warned_of
    server = boot_jobs("#{PLAIN}module Sidekiq::Cron; end", env: env)
    server.wait_line(/sidekiq-cron is loaded: its schedules do not fire here; write them as jobs { cron/)
    assert_equal 0, server.stop
  end

  def test_a_gem_with_another_database_is_refused
    server = launch_jobs(PLAIN, env: { "REDIS_URL" => "#{redis.url.sub(%r{/\d+\z}, "")}/1" })
    refute_equal 0, server.wait_exit
    assert_match(/the sidekiq gem enqueues to another Redis, database or namespace/, server.log)
    other = %r{jobs are claimed from (redis://\S+/0),.*write jobs \{ store "(redis://\S+/1)" \} into config/chaton\.rb}
    assert_equal [redis.url, "#{redis.url.delete_suffix("/0")}/1"], server.log.match(other).captures
  end

  def test_a_redis_that_only_the_initializer_names_is_refused_with_the_line_to_add
    initializer = "#{PLAIN}Sidekiq.configure_server { |c| c.redis = { url: #{redis.url.sub("//", "//:pw@").dump} } }"
    server = prepare_jobs(initializer) { |one| remove_store(one) }
    server.start
    refute_equal 0, server.wait_exit
    assert_match(%r{from sqlite:///\S+/storage/chaton_production\.db, the default, but the sidekiq gem}, server.log)
    assert_includes server.log.gsub('\\"', '"'), "write jobs { store \"#{redis.url}\" } into config/chaton.rb"
    refute_includes server.log, "pw@"
  end

  def test_a_store_that_is_named_may_be_another_one_than_redis
    @store = "sqlite://storage/chaton.db"
    server = boot_jobs(PLAIN, env: { "REDIS_URL" => redis.url })
    server.wait_line(/the sidekiq gem is loaded: its classes enqueue to its own Redis/)
    assert_equal 0, server.stop
  end

  def test_a_gem_whose_redis_cannot_be_asked_is_warned_of
    server = boot_jobs(PLAIN, env: { "REDIS_URL" => "redis://127.0.0.1:1/0" })
    server.wait_line(/it is unknown whether the sidekiq gem uses the same Redis as Chaton/)
    assert_equal 0, server.stop
  end

  private

  def remove_store(server)
    server.write("config/chaton.rb", server.read("config/chaton.rb").sub(/^ *store .*\n/, ""))
  end

  def env = { "REDIS_URL" => redis.url }
end
