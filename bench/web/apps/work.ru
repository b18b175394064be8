# frozen_string_literal: true

require "rack/files"
require "timeout"
require "tmpdir"

# Typical work of applications, one path for each kind.
class Work
  TYPE = { "content-type" => "application/octet-stream" }.freeze
  BIG = ("x" * (3 * 1024 * 1024)).freeze
  STREAM_CHUNKS = 1000
  CHUNK = ("y" * 64).freeze

  def initialize
    folder = Dir.mktmpdir("chaton-bench-files")
    File.write(File.join(folder, "big"), BIG)
    at_exit { FileUtils.rm_rf(folder) if Process.pid == @pid }
    @pid = Process.pid
    @files = Rack::Files.new(folder)
  end

  def call(env)
    case env["PATH_INFO"]
    when "/page", "/quick", "/records", "/time-out" then send(env["PATH_INFO"].delete_prefix("/").tr("-", "_"))
    when "/sleep" then pause(env["QUERY_STRING"].to_f)
    when "/compute" then burn_ms(env["QUERY_STRING"].to_f) && respond("computed")
    when "/burn" then burn_ms(300) && respond("burnt")
    when "/post" then respond(env["rack.input"].read.bytesize.to_s)
    when "/big" then respond(BIG)
    when "/file" then @files.call(env.merge("PATH_INFO" => "/big"))
    when "/stream" then [200, TYPE.dup, Enumerator.new { |out| STREAM_CHUNKS.times { out << CHUNK } }]
    else respond("ready")
    end
  end

  private

  # The common request: three queries of 2 ms each, and 1 ms of rendering after each.
  def page
    3.times do
      sleep 0.002
      burn_ms(1)
    end
    respond("page")
  end

  # One query of 1 ms and very little rendering.
  def quick
    sleep 0.001
    burn_ms(0.2)
    respond("quick")
  end

  # Ten queries of 0.5 ms each, as an object mapper sends them.
  def records
    10.times do
      sleep 0.0005
      burn_ms(0.2)
    end
    burn_ms(0.3)
    respond("records")
  end

  # Responds with the time at which it began.
  def pause(seconds)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    sleep seconds
    respond(began.to_s)
  end

  # Computes for 6 s unless the time-out arrives.
  def time_out
    Timeout.timeout(1) { burn_ms(6000) }
    [500, TYPE.dup, ["the time-out did not arrive"]]
  rescue Timeout::Error
    respond("timed out")
  end

  # Spends this thread's processor time, so that waiting for Ruby's lock does not count as work.
  def burn_ms(milliseconds)
    until_s = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + (milliseconds / 1000.0)
    nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < until_s
    true
  end

  def respond(text) = [200, TYPE.dup, [text]]
end

run Work.new
