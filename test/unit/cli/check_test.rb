# frozen_string_literal: true

require_relative "cli_case"
require "json"

class CheckTest < CLICase
  def test_a_plan_for_people
    status, text, errors = chaton("check", "-w", "2", "-e", "production", "-C", "-")
    assert_equal [0, ""], [status, errors]
    assert_match(/^  workers +2$/, text)
    assert_match(%r{^  application +#{@root}/config.ru$}, text)
    assert_match(/^  request_timeout_s +30$/, text)
    options = Chaton::Config::Options::ALL.reject { |option| option.group == :server || option.scope == :jobs }
    options.each { |option| assert_match(/^  #{option.name} /, text) }
  end

  def test_a_plan_for_programs
    plan = JSON.parse(chaton("check", "--json", "-b", "tcp://127.0.0.1:1")[1])
    assert_equal [["tcp://127.0.0.1:1"], 0], plan.values_at("binds", "workers")
  end

  def test_an_application_that_does_not_load
    File.write("config.ru", "run Nonsense\n")
    status, out, errors = chaton("check")
    assert_equal [1, ""], [status, out]
    assert_match(%r{\Achaton: .*#{@root}/config.ru}, errors)
    assert_match(/Nonsense/, errors)
  end

  def test_notes_are_shown
    FileUtils.mkdir_p("config")
    File.write("config/puma.rb", "plugin :tmp_restart")
    assert_match(%r{^Notes\n  config/puma.rb:1: plugin :tmp_restart}, chaton("check")[1])
  end

  def test_another_file_than_config_ru
    File.rename("config.ru", "other.ru")
    assert_equal 0, chaton("check", "other.ru")[0]
    assert_match(/one argument too many: more.ru/, chaton("check", "other.ru", "more.ru")[2])
  end
end
