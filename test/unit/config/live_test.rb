# frozen_string_literal: true

require_relative "config_case"

class LiveConfigTest < ConfigCase
  def live(text, given = {}) = plan(text, given).live

  def test_messages_are_in_a_file_of_the_environment
    file = "#{@root}/storage/chaton_production_live.db"
    [live("", environment: "production"), live("jobs { store \"postgres://h/d\" }", environment: "production")]
      .each { |live| assert_equal ["sqlite://#{file}", file, nil], [live.live_store, live.file, live.redis] }
    assert_equal "#{@root}/own.db", live("live { store \"sqlite://own.db\" }\njobs { store \"redis://h\" }").file
  end

  def test_messages_are_in_the_redis_of_jobs_or_in_another_one
    jobs = "jobs { store \"redis://bob:hush@h/1\"; password \"other\"; tls_ca_file \"ca.pem\"; answer_timeout_s 2.0 }\n"
    same, other = live(jobs), live("#{jobs}live { store \"rediss://i/2\" }")
    assert_equal ["redis://bob:hush@h/1", [nil, "other"]], same.redis.values_at(:url, :user)
    assert_equal ["rediss://i/2", [nil, nil]], other.redis.values_at(:url, :user)
    assert_equal [["#{@root}/ca.pem", nil, nil], true, 2.0],
                 [*other.redis.values_at(:tls_files, :tls_verify), other.redis[:timeouts_s].last]
    # What waits for it.
    assert_equal "#{@root}/storage/chaton_development_live.db", same.file
    refute_match(/hush|other/, same.to_h.to_s + same.inspect)
    assert_match(%r{store must be sqlite://PATH, or an address of Redis.*not "postgres://\*\*\*@h/d"},
                 only_problem("live { store \"postgres://u:hush@h/d\" }").to_s)
  end
end
