# frozen_string_literal: true

require "test_helper"
require "open3"
require_relative "../../support/postgres_server"
require_relative "../../support/redis_server"

# See support/names_case.rb.
class SidekiqNamesTest < Minitest::Test
  CASES = Dir[File.join(__dir__, "support/sidekiq_*.rb")]
  ROOT = File.expand_path("../../..", __dir__)

  def test_sidekiqs_names_without_the_gem_on_sqlite
    assert_cases "sqlite"
  end

  def test_sidekiqs_names_without_the_gem_on_redis
    redis = RedisServer.new({ "appendonly" => "no" }).start
    assert_cases redis.url
  ensure
    redis&.close
  end

  def test_sidekiqs_names_without_the_gem_on_postgres
    server = PostgresServer.shared
    assert_cases server.url(server.create_database)
  end

  private

  def assert_cases(store)
    files = CASES.map { |file| "-r#{file}" }
    output, status = Open3.capture2e({ "STORE" => store }, "ruby", "-W0", "-I#{ROOT}/lib", "-I#{ROOT}/test", "-rredis",
                                     *files, "-e", "")
    assert_predicate status, :success?, output
    assert_match(/\b0 failures, 0 errors, 0 skips/, output)
  end
end
