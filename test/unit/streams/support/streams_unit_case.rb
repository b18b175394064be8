# frozen_string_literal: true

require "test_helper"
require "chaton"
require "chaton/config"
require "chaton/streams/handler"
require "chaton/streams/native_methods"
require "chaton/telemetry/log"
require "open3"
require "stringio"
require "tmpdir"
require_relative "fake_batch"

# Streams without a log: consumers are given batches that no engine stands behind.
class StreamsUnitCase < Minitest::Test
  LIB = File.expand_path("../../../../lib", __dir__)
  # Longest wait for anything.
  WAIT_S = 30

  def setup
    @output = StringIO.new
    @former = Chaton::Streams.swap_client(nil)
  end

  def teardown
    Chaton::Streams.swap_client(@former)
    Chaton::Streams.error_handlers.clear
  end

  def log(level = :info) = Chaton::Telemetry::Log.new(io: @output, level: level)
  def logged = @output.string

  # The settings of a `streams { }`.
  def settings(text = "")
    Dir.mktmpdir do |root|
      path = File.join(root, "chaton.rb")
      File.write(path, "streams do\n#{text}\nend")
      Chaton::Config.load({ config_file: path }, env: {}, root: root).streams
    end
  end

  # A handler of one topic, "events", that this class consumes.
  def handler(klass, keywords = "", level: :info)
    found = settings("topic 'events', 'Stands'#{", #{keywords}" unless keywords.empty?}")
    route = found.routes.first.dup
    route.consumer = klass
    found = found.dup
    found.routes = [route]
    Chaton::Streams::Handler.new(found, log: log(level))
  end

  # Values, or rows of value, key, headers, timestamp_ms and offset.
  def batch(*values, topic: "events", partition: 3)
    rows = values.map { |value| value.is_a?(Array) ? value + ([nil] * (5 - value.size)) : [value, nil, nil, nil, nil] }
    Chaton::Streams::Batch.build(topic, partition, rows)
  end

  # A batch as the engine would give it out: its kind, generation, lane and attempt can be said.
  def fake_batch(*values, **facts) = FakeBatch.new(batch(*values), **facts)

  # A process of its own; answers what it printed.
  def in_process(script)
    output, status = Open3.capture2e("ruby", "-W0", "-I#{LIB}", "-", stdin_data: script)
    assert_predicate status, :success?, output
    output
  end
end
