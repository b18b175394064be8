# frozen_string_literal: true

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

  def test_mistakes_are_named
    assert_match(/bind must have a port/, only_problem("admin { bind \"tcp://a:99999\" }").to_s)
    assert_match(/did you mean hosts/, only_problem("admin { host \"a\" }").to_s)
    assert_match(/admin needs a block/, only_problem("admin \"tcp://127.0.0.1\"").to_s)
  end

  def test_the_report_shows_it
    defaults = load
    report = Chaton::CLI::PlanReport.new(plan("admin { bind \"tcp://127.0.0.1\" }"), defaults: defaults)
    assert_match(%r{^  admin_bind +tcp://127.0.0.1:9394$}, report.to_s)
  end
end
