# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "output"

# The installed Puma with an inline application, for comparison.
class PumaServer
  WAIT_S = 30
  # Since Puma 6 it refuses methods that it does not know, unless it is told otherwise.
  CONFIG = "supported_http_methods :any if respond_to?(:supported_http_methods)"

  attr_reader :port

  # @param rackup [String] text of config.ru
  def initialize(rackup)
    @dir = Dir.mktmpdir("chaton-puma")
    File.write(File.join(@dir, "config.ru"), rackup)
    File.write(File.join(@dir, "puma.rb"), CONFIG)
  end

  # @return [self] once it listens
  def start
    pipe, input = IO.pipe
    @pid = Process.spawn({ "RACK_ENV" => "production", "PORT" => nil, "WEB_CONCURRENCY" => nil },
                         "puma", "-C", "puma.rb", "-w", "0", "-t", "1:32", "-b", "tcp://127.0.0.1:0", "config.ru",
                         chdir: @dir, out: input, err: input)
    input.close
    @output = Output.new(pipe)
    @port = @output.wait_line(/Listening on/, count: 1, timeout_s: WAIT_S)[/:(\d+)\s*$/, 1].to_i
    self
  end

  def close
    if @pid
      Process.kill("KILL", @pid)
      Process.wait(@pid)
      @output.ended?(5)
    end
    FileUtils.remove_entry(@dir)
  end
end
