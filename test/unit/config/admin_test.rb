# frozen_string_literal: true

require "json"
require_relative "config_case"
require "chaton/cli/plan_report"

# The block `admin { }`.
class AdminConfigTest < ConfigCase
  def test_it_is_off_without_a_bind
    assert_nil load.admin
    assert_nil plan("admin { hosts \"a\" }").admin
    assert_nil load.to_h.fetch(:admin)
  end

  def test_binds_add_up_and_have_a_port_of_their_own
    admin = plan("admin do\n  bind \"tcp://127.0.0.1\"\n  bind \"unix://tmp/a.sock\"\nend").admin
    tcp, unix = admin.admin_bind
    assert_equal ["tcp://127.0.0.1:9394", "unix://#{@root}/tmp/a.sock", 0o177], [tcp.to_s, unix.to_s, unix.umask]
    assert_equal [64, 5.0, []], [admin.admin_connections_max, admin.admin_timeout_s, admin.admin_hosts]
    assert_equal [9292], load.binds.map(&:port)
  end

  def test_a_mode_that_is_given_is_kept
    bind = plan("admin { bind \"unix:///run/a.sock?mode=0660\" }").admin.admin_bind.first
    assert_equal [0o660, nil], [bind.mode, bind.umask]
  end

  def test_hosts_are_words
    assert_equal %w[a b c], plan("admin { bind \"tcp://[::1]\"; hosts \"a\", \"b\"; hosts \"c\" }").admin.admin_hosts
    assert_match(/hosts must be names of hosts/, only_problem("admin { hosts 1 }").to_s)
  end

  def test_statsd_needs_no_bind_and_has_a_port_of_its_own
    admin = plan("admin { statsd \"udp://localhost\"; statsd_tags true }").admin
    assert_equal [[], "udp://localhost:8125", 10.0, true],
                 [admin.admin_bind, admin.admin_statsd, admin.admin_statsd_interval_s, admin.admin_statsd_tags]
    assert_equal "udp://[::1]:99", plan("admin { statsd \"udp://[::1]:99\" }").admin.admin_statsd
    ["tcp://a:1", "udp://a:0", "udp://a:65536", "udp://a:b", "udp://a:1/x", "udp://u:p@a:1"].each do |wrong|
      assert_match(/statsd must be a URI such as/, only_problem("admin { statsd \"#{wrong}\" }").to_s)
    end
  end

  def test_only_where_metrics_are_read_are_waits_timed_and_brokers_counted
    of = lambda do |text|
      document = JSON.parse(plan("streams {}\n#{text}").engine_document(roles: [:streams], slot: 0))
      [document["pool"]["gvl_wait"], document["streams"]["broker_statistics_s"]]
    end
    assert_equal [false, 0.0], of.call("")
    assert_equal [true, 10.0], of.call("admin { bind \"tcp://127.0.0.1\" }")
    assert_equal [true, 10.0], of.call("admin { statsd \"udp://a\" }")
  end

  def test_mistakes_are_named
    assert_match(/bind must have a port/, only_problem("admin { bind \"tcp://a:99999\" }").to_s)
    assert_match(/did you mean hosts/, only_problem("admin { host \"a\" }").to_s)
    assert_match(/admin needs a block/, only_problem("admin \"tcp://127.0.0.1\"").to_s)
  end

  def test_the_report_shows_it
    defaults = load
    report = Chaton::CLI::PlanReport.new(plan("admin { bind \"tcp://127.0.0.1\" }"), defaults: defaults)
    assert_match(%r{^  bind +tcp://127.0.0.1:9394$}, report.to_s)
  end
end
