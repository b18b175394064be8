# frozen_string_literal: true

require_relative "cli_case"
require "chaton/cli/run"

# The parts of `chaton run` that start nothing; test/integration/memory/run_test.rb has the rest.
class RunCommandTest < CLICase
  def test_arguments_after_the_command_belong_to_it
    arguments = Chaton::CLI::Arguments.new(%w[--eden 64M rake --quiet -w 2], options: Chaton::CLI::Run.options,
                                                                             switches: ["--quiet"], wraps: true)
    assert_equal [{ eden: "64M" }, %w[rake --quiet -w 2], []], [arguments.given, arguments.rest, arguments.problems]
    refute arguments.switch?("--quiet")
    arguments = Chaton::CLI::Arguments.new(%w[--quiet -- --odd], options: [], switches: ["--quiet"], wraps: true)
    assert_equal [["--odd"], true], [arguments.rest, arguments.switch?("--quiet")]
  end

  def test_mistakes
    assert_match(/there is no command to run: chaton run -- COMMAND/, chaton("run")[2])
    assert_match(/--allocator must be auto.*not "tcmalloc"/, chaton("run", "--allocator", "tcmalloc", "true")[2])
    assert_match(/--workers is not an option/, chaton("run", "--workers", "2", "true")[2])
  end

  def test_commands_that_cannot_be_started
    assert_equal [127, "", "chaton run: no-such-command: there is no such command\n"], chaton("run", "no-such-command")
    File.write("data", "x")
    assert_equal [126, "", "chaton run: ./data: it cannot be executed (EACCES)\n"], chaton("run", "./data")
  end

  def test_readings_are_stored_under_the_program_s_name
    { %w[sidekiq -c 5] => "sidekiq", %w[bundle exec sidekiq] => "sidekiq", %w[ruby -Ilib bin/x.rb] => "x.rb",
      %w[bundle3.1 exec rails runner X.y] => "rails-runner", %w[env A=1 rake jobs:work] => "rake-jobs:work",
      %w[ruby] => "ruby", %w[/usr/bin/ruby3.3 a] => "a" }
      .each { |command, name| assert_equal name, Chaton::CLI::Run.name_of(command) }
  end

  def test_help
    assert_match(/^Usage: chaton run \[options\] \[--\] COMMAND \[ARGUMENTS\]$/, chaton("run", "--help")[1])
  end
end
