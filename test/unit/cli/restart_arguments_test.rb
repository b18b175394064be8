# frozen_string_literal: true

require "test_helper"
require "chaton/cli"
require "chaton/cli/serve"

class RestartArgumentsTest < Minitest::Test
  Plan = Struct.new(:root, :config_file)

  def repeat(argv, plan)
    given = Chaton::CLI::Arguments.new(argv, options: Chaton::Config::Options.on_command_line).given
    given[:rackup] = "/home/me/app.ru" if argv.include?("app.ru")
    Chaton::CLI::RestartArguments.from(argv, given, plan: plan, typed_in: "/home/me")
  end

  def test_as_typed_in_the_same_directory
    argv = %w[-C my.rb -w2 app.ru]
    assert_same argv, repeat(argv, Plan.new("/home/me", "/home/me/my.rb"))
  end

  def test_from_another_directory_it_finds_the_same_files
    argv = %w[-C my.rb -w2 -b tcp://a:1 -b tcp://a:2 --no-preload app.ru]
    repeated = %w[serve --config /home/me/my.rb --workers 2 --bind tcp://a:1 --bind tcp://a:2 --no-preload
                  /home/me/app.ru]
    assert_equal repeated, repeat(argv, Plan.new("/srv", "/home/me/my.rb"))
    assert_equal %w[serve --config -], repeat([], Plan.new("/srv", nil))
  end
end
