# frozen_string_literal: true

require_relative "cli_case"
require "json"

class CLITest < CLICase
  def test_version_and_help
    assert_equal [0, ""], chaton("-v").values_at(0, 2)
    assert_match(/\Achaton \d+\.\d+\.\d+ \(ruby/, chaton("--version")[1])
    status, text, = chaton("-h")
    assert_equal 0, status
    Chaton::CLI::Commands::ALL.each_key { |name| assert_includes text, "  #{name}" }
    Chaton::Config::Options.on_command_line.flat_map(&:flags).each do |flag|
      assert_includes text.gsub("--[no-]", "--"), flag
    end
    assert_operator text.lines.map(&:length).max, :<=, 112
    assert_equal text, chaton("help")[1]
  end

  def test_help_of_a_command
    text = chaton("status", "--help")[1]
    assert_equal text, chaton("help", "status")[1]
    assert_includes text, "--json"
    refute_includes text, "--workers"
    assert_equal "chaton: there is no command nonsense; `chaton help` lists the commands\n",
                 chaton("help", "nonsense")[2]
  end

  def test_a_misspelt_command
    status, _, errors = chaton("staus")
    assert_equal 1, status
    assert_equal "chaton: there is no command staus; did you mean status?\n", errors
    assert_match(/\Achaton: the command line has an error\n  command line: --jsn is not an option; did you mean --json/,
                 chaton("status", "--jsn")[2])
  end

  def test_help_of_every_command_and_subcommand
    Chaton::CLI::Commands::ALL.each_key do |name|
      assert_help(name)
      group = Chaton::CLI::Commands.find(name)
      group::ALL.each_key { |sub| assert_help(name, sub) } if group.respond_to?(:pick)
    end
  end

  def test_errors_of_command_line_and_file_together
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", "wokers 2\n")
    status, _, errors = chaton("check", "--treads", "-w", "x", "--streams", "-b")
    assert_equal 1, status
    assert_match(/\Achaton: the configuration has 5 errors$/, errors)
    ["--treads is not an option; did you mean --threads?", "--workers must be", "and no topic has a consumer",
     "-b needs a value: -b URI", "config/chaton.rb:1: wokers"].each { |text| assert_includes errors, text }
    refute_includes errors, "cli.rb", "a backtrace"
  end

  def test_an_unexpected_error_shows_where_only_when_asked
    File.write("broken.rb", "exit_now = Object.new\ndef exit_now.to_s = raise(IOError, 'odd')\ntag \"a\#{exit_now}\"")
    refute_includes chaton("check", "-C", "broken.rb")[2], "cli.rb"
    Chaton::Config.stub(:load, ->(*, **) { raise IOError, "odd" }) do
      assert_match(/\Achaton: IOError: odd \(unexpected; --log-level debug shows where\)\n\z/, chaton("check")[2])
      assert_includes chaton("check", "--log-level", "debug")[2], "command.rb"
      assert_includes chaton("check", "--log-level=debug")[2], "command.rb"
    end
  end

  def test_commands_without_a_server
    %w[status quiet stop restart].each do |command|
      status, out, errors = chaton(command)
      assert_equal [1, ""], [status, out]
      assert_match(%r{\Achaton: no server listens at #{@root}/tmp/chaton.sock.* socket: --control-socket FILE}, errors)
      assert_match(%r{listens at #{@root}/x.sock}, chaton(command, "--control-socket", "x.sock")[2])
    end
  end

  def test_commands_take_no_argument
    assert_match(/takes no argument, not "now"/, chaton("stop", "now")[2])
  end

  def test_no_control_socket
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", "control_socket false")
    assert_match(/control_socket is off/, chaton("stop")[2])
  end

  def test_serve_without_an_application
    FileUtils.rm("config.ru")
    status, _, errors = chaton("serve", "-e", "test")
    assert_equal 1, status
    assert_match(%r{there is no #{@root}/config.ru; name the application's Rack file}, errors)
    assert_match(/nothing.ru is neither a command nor a file/, chaton("nothing.ru")[2])
  end

  private

  def assert_help(*words)
    status, text, errors = chaton(*words, "--help")
    assert_equal [0, ""], [status, errors], words.join(" ")
    assert_match(/\Achaton #{words.join(" ")}: \S.*^Usage: chaton #{words.join(" ")}/m, text)
  end
end
