# frozen_string_literal: true

require "test_helper"
require "open3"
require "stringio"
require "tmpdir"
require "chaton"
require "chaton/telemetry/log"
require "chaton/jobs/handler"
require_relative "fake_client"

# Jobs without a store: pushes go to a FakeClient, and FakeJobs are run.
class JobsUnitCase < Minitest::Test
  LIB = File.expand_path("../../../../lib", __dir__)

  def setup
    @native = FakeClient.new
    @config = Chaton::Jobs::Setup.new
    @former = Chaton::Jobs.swap_client(client)
    @output = StringIO.new
  end

  def teardown
    Chaton::Jobs.swap_client(@former)
    Chaton::Jobs.stopping = false
  end

  def client(**more) = Chaton::Jobs::Client.new(@native, setup: @config, **more)
  def log(level = :info) = Chaton::Telemetry::Log.new(io: @output, level: level)
  def handler(**more) = Chaton::Jobs::Handler.new(log: log, setup: @config, **more)
  def logged = @output.string

  # A job of a class that a worker has taken.
  def job(klass, *args, **more)
    FakeJob.new({ "class" => klass.to_s, "args" => args, "jid" => "b4a577edbccf1d805744efa9", "queue" => "default",
                  "retry" => true, "enqueued_at" => 1.5 }.merge(more.transform_keys(&:to_s)))
  end

  def run_job(...)
    job(...).tap { |one| handler.call(one) }
  end

  # What needs constants that other tests must not see runs by itself. Answers what it printed.
  def in_process(script)
    support = File.join(__dir__, "fake_client")
    output, status = Open3.capture2e("ruby", "-W0", "-I#{LIB}", "-r#{support}", "-", stdin_data: script)
    assert_predicate status, :success?, output
    output
  end
end
