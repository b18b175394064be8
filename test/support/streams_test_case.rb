# frozen_string_literal: true

require "securerandom"
require_relative "kafka_broker"
require_relative "streams_log"
require_relative "streams_server"

# For Minitest: tests of the role streams. `each_log def test_it` makes one test for each kind of log.
module StreamsTest
  include ServerTest

  LOGS = %i[local kafka].freeze
  # Long enough for a machine that builds and tests at once.
  WAIT_S = 30
  # Writes down each record.
  NOTING = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch) = batch.each { |record| Evidence.did(record) }
    end
  RUBY

  # For the classes of tests.
  module EachLog
    # @param name [Symbol] what `def` answers
    def each_log(name)
      body = instance_method(name)
      remove_method(name)
      LOGS.each do |kind|
        define_method("#{name}_on_#{kind}") do
          @kind = kind
          body.bind_call(self)
        end
      end
    end
  end

  def self.included(base)
    super
    base.extend(EachLog)
  end

  attr_reader :kind

  def kafka? = kind == :kafka

  # @return [String] this test's log
  def broker
    @broker ||= kafka? ? kafka.url : "log://#{scratch}/log"
  end

  # @return [KafkaBroker] the one that all tests share which do it no harm
  def kafka = @kafka ||= KafkaBroker.shared

  # @return [StreamsLog] that log from outside
  def log = @log ||= StreamsLog.new(broker)

  # @return [Evidence] of all servers of this test
  def evidence = @evidence ||= Evidence.new(File.join(scratch, "evidence"))

  # @return [String] a directory of this test's
  def scratch = @scratch ||= Dir.mktmpdir("chaton-streams")

  # @return [String] a topic's name that no other test has
  def topic(name = "events") = (@names ||= {})[name] ||= "#{name}-#{SecureRandom.hex(4)}"

  # @return [String] a group's name that no other test has
  def group = topic("group")

  # Makes a topic.
  #
  # @return [String] its name
  def create(name = "events", **options) = log.create(topic(name), **options)

  # @return [String] a line of the configuration
  def route(name = "events", consumer: "EventsConsumer", **options)
    words = { group: group }.merge(options).map { |option, value| "#{option}: #{value.inspect}" }
    "topic #{topic(name).dump}, #{consumer}, #{words.join(", ")}"
  end

  # @param routes [String, Array<String>] lines of `streams { }`
  # @return [StreamsServer] a directory with everything in it; nothing runs
  def prepare_streams(consumers = NOTING, topics: route, **options)
    server = StreamsServer.new(broker: broker, consumers: consumers, topics: Array(topics).join("\n"),
                               evidence: File.join(scratch, "evidence"), **options)
    evidence
    (@servers ||= []) << server
    yield server if block_given?
    server
  end

  # @return [StreamsServer] started, not yet ready
  def launch_streams(consumers = NOTING, **options, &block) = prepare_streams(consumers, **options, &block).start

  # @return [StreamsServer] whose workers are ready
  def boot_streams(consumers = NOTING, **options, &block) = launch_streams(consumers, **options, &block).ready

  # @return [Console] in a server's directory
  def console(server, requires: ["chaton"], **options)
    made = Console.new(server.dir, requires: requires, **options)
    (@consoles ||= []) << made
    made
  end

  # Waits until the group has done everything, and says so in the log.
  def assert_all_committed(server, name = "events", timeout_s: WAIT_S)
    server.eventually("all of #{name} is committed", timeout_s: timeout_s) { log.done?(group, topic(name)) }
  end

  # What a group has said it has done, it has done.
  def assert_nothing_committed_too_early
    committed = log.committed(group)
    done = evidence.offsets
    committed.each do |place, offset|
      first = log.partitions(place.first).find { |part| part["number"] == place.last }["start"]
      missing = (first...offset).to_a - done.fetch(place, [])
      assert_empty missing.first(10), "#{place.join("/")} is committed to #{offset}"
    end
  end

  def teardown
    (@consoles || []).each(&:close)
    super
    @log&.close
    (@kafkas || []).each(&:close)
    FileUtils.remove_entry(@scratch) if @scratch
  end
end
