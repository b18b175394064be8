# frozen_string_literal: true

require "securerandom"
require_relative "kafka_broker"
require_relative "role_test_case"
require_relative "streams_log"
require_relative "streams_server"

# For tests of the role streams. `each_log def test_it` defines one test for each kind of log.
module StreamsTest
  include RoleTest

  LOGS = %i[local kafka].freeze
  # Notes each record.
  NOTING = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch) = batch.each { |record| Evidence.did(record) }
    end
  RUBY

  # For test classes.
  module EachLog
    include RoleTest::EachKind

    def each_log(name) = each_kind(LOGS, name)
  end

  def self.included(base)
    super
    base.extend(EachLog)
  end

  def kafka? = kind == :kafka

  # @return [String] the address of this test's log
  def broker
    @broker ||= kafka? ? kafka.url : "log://#{scratch}/log"
  end

  # @return [KafkaBroker] shared by all tests that do not harm it
  def kafka = @kafka ||= KafkaBroker.shared

  # @return [StreamsLog] a client of this test's log
  def log = @log ||= StreamsLog.new(broker).tap { |log| (@stores ||= []) << log }

  # @return [Evidence] of all servers of this test
  def evidence = @evidence ||= Evidence.new(File.join(scratch, "evidence"))

  # @return [String] a topic's name that is unique to this test
  def topic(name = "events") = (@names ||= {})[name] ||= "#{name}-#{SecureRandom.hex(4)}"

  # @return [String] a group's name that is unique to this test
  def group = topic("group")

  # Changes the database of the local log, in a process of its own: SQLite's locks belong to a process, and this one
  # may use the file, too.
  #
  # @param sql [String]
  def change_log(sql, path: "#{scratch}/log/log.db")
    program = "db = SQLite3::Database.new(ARGV[0]); db.busy_timeout = 30_000; db.execute_batch(ARGV[1])"
    system(RbConfig.ruby, "-rsqlite3", "-e", program, path, sql, exception: true)
  end

  # Creates a topic.
  #
  # @return [String] its name
  def create(name = "events", **options) = log.create(topic(name), **options)

  # @return [String] a line of the configuration
  def route(name = "events", consumer: "EventsConsumer", **options)
    words = { group: group }.merge(options).map { |option, value| "#{option}: #{value.inspect}" }
    "topic #{topic(name).dump}, #{consumer}, #{words.join(", ")}"
  end

  # @param routes [String, Array<String>] lines of `streams { }`
  # @return [StreamsServer] not started
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
  def console(server, requires: ["chaton"], **options) = super

  # Waits until the group has committed all records of the topic.
  def assert_all_committed(server, name = "events", timeout_s: WAIT_S)
    server.eventually("all of #{name} is committed", timeout_s: timeout_s) { log.done?(group, topic(name)) }
  end

  # Asserts that all committed records were consumed.
  def assert_nothing_committed_too_early
    committed = log.committed(group)
    done = evidence.offsets
    committed.each do |place, offset|
      first = log.partitions(place.first).find { |part| part["number"] == place.last }["start"]
      missing = (first...offset).to_a - done.fetch(place, [])
      assert_empty missing.first(10), "#{place.join("/")} is committed to #{offset}"
    end
  end
end
