# frozen_string_literal: true

require "test_helper"
require "chaton/cli"
require "fileutils"
require "stringio"
require "tmpdir"

# The command line in a scratch directory with a config.ru; directory and environment are put back.
class CLICase < Minitest::Test
  APP = "run ->(_env) { [200, {}, [\"hello\"]] }\n"

  def setup
    @env = ENV.to_h
    @before = Dir.pwd
    @root = File.realpath(Dir.mktmpdir("chaton-cli"))
    Dir.chdir(@root)
    File.write("config.ru", APP)
  end

  def teardown
    Dir.chdir(@before)
    ENV.replace(@env)
    FileUtils.remove_entry(@root)
  end

  private

  # @return [Array(Integer, String, String)] exit status, output, errors
  def chaton(*argv)
    out, err = StringIO.new, StringIO.new
    [Chaton::CLI.start(argv, out: out, err: err), out.string, err.string]
  end
end
