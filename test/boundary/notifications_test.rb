# frozen_string_literal: true

require_relative "workload_case"

# Requests are published through ActiveSupport::Notifications while somebody subscribes.
class NotificationsTest < Minitest::Test
  include WorkloadCase

  NAME = "request.chaton"

  def setup
    super
    needs_gems "activesupport"
    require "active_support"
    require "active_support/notifications"
    @subscribers = []
  end

  def teardown
    super
    @subscribers&.each { |one| ActiveSupport::Notifications.unsubscribe(one) }
    ::Rails.singleton_class.send(:remove_method, :event) if @reporter
  end

  def test_a_request_is_published_with_its_status_and_duration
    seen = subscribe
    port = serve { |env| env["PATH_INFO"] == "/raise" ? raise(IOError, "no luck") : [201, {}, ["fine"]] }
    connect(port) { |client| client.get("/new?a=1", headers: { "X-Request-Id" => "seven" }) }
    get(port, "/raise")
    eventually { seen.size == 2 }
    created, failed = 2.times.map { seen.pop }.sort_by { |event| event.payload[:path] }
    assert_equal ["seven", "GET", "/new", 201, nil],
                 created.payload.values_at(:request_id, :method, :path, :status, :exception)
    assert_operator created.duration, :>=, 0
    assert_equal "a=1", created.payload[:env]["QUERY_STRING"]
    assert_equal [500, ["IOError", "no luck"]], failed.payload.values_at(:status, :exception)
    assert_kind_of IOError, failed.payload[:exception_object]
  end

  def test_a_subscriber_that_fails_harms_no_request
    calls = Queue.new
    @subscribers << ActiveSupport::Notifications.subscribe(NAME) do |*|
      calls << :call
      raise "no subscriber"
    end
    port = serve { [200, {}, ["fine"]] }
    2.times { assert_equal "fine", get(port).body }
    eventually { calls.size == 2 && @output.string.scan("a subscriber of request.chaton failed").size == 2 }
  end

  def test_without_a_subscriber_nothing_is_added_to_the_request
    envs = Queue.new
    port = serve do |env|
      envs << env["rack.response_finished"]
      [200, {}, ["fine"]]
    end
    assert_equal "fine", get(port).body
    assert_empty envs.pop
    subscribe
    eventually { get(port) && envs.pop.size == 1 }
  end

  # As in Rails 8.1, whose event reporter takes keywords.
  Reporter = Struct.new(:subscribers, :events) do
    def notify(name, **payload) = events << [name, payload]
  end

  def test_rails_events_get_what_can_be_written_down
    # ActiveSupport may have defined the module.
    Object.const_set(:Rails, Module.new) unless Object.const_defined?(:Rails)
    reporter = @reporter = Reporter.new([:one], Queue.new)
    ::Rails.define_singleton_method(:event) { reporter }
    port = serve { [200, {}, ["fine"]] }
    get(port, "/a")
    eventually { reporter.events.size == 1 }
    name, payload = reporter.events.pop
    assert_equal [NAME, %i[request_id method path status duration_ms]], [name, payload.keys]
    reporter.subscribers.clear
    get(port, "/b")
    assert_empty reporter.events
  end

  # A batch, as far as it is published.
  class Batch
    attr_reader :kind

    def initialize(kind)
      @kind = kind
    end

    def topic = "orders"
    def partition = 1
    def size = 9
    def describe = "orders/1 @0-8"
  end

  def test_batches_are_published_but_no_notices
    seen = subscribe("batch.chaton")
    ran = []
    handler = Chaton::Notifications.around(:streams, ran.method(:<<), log: @log)
    %i[records revoked].each { |kind| handler.call(Batch.new(kind)) }
    assert_equal %i[records revoked], ran.map(&:kind)
    assert_equal [{ topic: "orders", partition: 1, records: 9, batch: "orders/1 @0-8" }],
                 Array.new(seen.size) { seen.pop.payload }
  end

  private

  def subscribe(name = NAME)
    seen = Queue.new
    @subscribers << ActiveSupport::Notifications.subscribe(name) { |event| seen << event }
    seen
  end
end
