# frozen_string_literal: true

require_relative "../cli_case"
require_relative "fake_log"
require "chaton/native"

# `chaton streams …` against logs in memory, by their address.
class CLIStreamsCase < CLICase
  def setup
    super
    FileUtils.mkdir_p("storage/streams")
    FileUtils.touch("storage/streams/log.db")
    @log = FakeLog.new("log://#{@root}/storage/streams")
    @logs = { @log.address => @log }
    @opened = []
    configure
  end

  private

  def configure(text = "")
    FileUtils.mkdir_p("config")
    File.write("config/chaton.rb", "streams do\n  broker \"log://storage/streams\"\n#{text}\nend\n")
  end

  # @return [Array(Integer, String, String)] exit status, output, errors
  def streams(*argv) = with_logs { chaton("streams", *argv) }

  def with_logs(&block)
    open = lambda do |json|
      settings = JSON.parse(json)
      @opened << settings
      @logs.fetch(settings["broker"]) { raise Chaton::StreamUnavailable, "nobody answers at #{settings["broker"]}" }
    end
    Chaton::Native::StreamsClient.stub(:new, open, &block)
  end

  def good(*argv)
    status, out, err = streams(*argv)
    assert_equal [0, ""], [status, err], argv.inspect
    out
  end

  def json(*argv) = JSON.parse(good(*argv, "--json"))

  # @return [String] the error
  def bad(*argv)
    status, out, err = streams(*argv)
    assert_equal [1, ""], [status, out], argv.inspect
    assert err.start_with?("chaton: "), err
    err
  end

  def with_input(text)
    before = $stdin
    $stdin = StringIO.new(text)
    yield
  ensure
    $stdin = before
  end
end
