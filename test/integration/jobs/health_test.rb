# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/jobs_test_case"

# /ready of workers that run jobs, while their store goes and comes back.
class JobsHealthTest < Minitest::Test
  include JobsTest

  def self.both(name) = each_kind(%i[redis postgres], name)
  private_class_method :both

  def kind = @kind || :redis

  def time_limit_s = 240

  both def test_jobs_are_ready_while_the_store_can_be_reached
    server = boot_jobs(config: "admin { bind \"unix://admin.sock\" }", section: "lease_s 1")
    ready(server, 200)
    assert_includes server.check, "the configuration is valid"
    store_server.kill
    why = ready(server, 503).reasons
    assert_match(/jobs is not ready: worker 0 cannot reach the job store; its last heartbeat was [\d.]+ s ago/, why)
    refute_includes why, secret
    assert_equal 200, admin(server).get("/live").status
    assert_match(/the job store cannot be reached now/, server.check)
    store_server.start
    ready(server, 200)
    refute_match(/the job store cannot be reached now/, server.check)
    assert_equal 0, server.stop(timeout_s: 60)
  end

  # The process that answers for the whole server loads no application.
  def test_a_store_that_only_the_application_names_is_told_of_where_the_admin_endpoint_shows_queues
    own = 'Chaton::Jobs.configure { |jobs| jobs.store "sqlite://storage/own.db" }'
    hint = /WARN .*the application names the store of jobs.*write the same address there +store=sqlite:\S*own\.db/
    [["admin { bind \"unix://admin.sock\" }", 1], ["", 0]].each do |config, lines|
      server = boot_jobs(own, config: config)
      server.wait_line(%r{jobs are run .*store=sqlite:///\S*/storage/own\.db})
      assert_equal lines, server.log.lines.grep(hint).size, server.log
      assert_equal 0, server.stop(timeout_s: 60)
    end
  end

  private

  def store = kind == :postgres ? store_server.url : super

  # One that may end.
  def store_server = kind == :postgres ? (@postgres ||= start_postgres) : redis

  def start_postgres = PostgresServer.new("fsync" => "off").start.tap { |server| (@stores ||= []) << server }

  # What tells where the store is.
  def secret = kind == :postgres ? store_server.dir : redis.port.to_s

  def admin(server) = AdminClient.new(server.path("admin.sock"))

  def ready(server, status)
    server.eventually("it is #{status}", timeout_s: 60) do
      answer = admin(server).get("/ready?role=jobs")
      answer if answer.status == status
    end
  end
end
