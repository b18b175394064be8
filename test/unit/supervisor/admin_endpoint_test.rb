# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/admin_endpoint"

class AdminEndpointTest < Minitest::Test
  Plan = Struct.new(:admin, :alive_timeout_s)
  Controller = Struct.new(:report)

  # The process of the endpoint; it takes reports while it has a pid and its pipe has room.
  class FakeProcess
    attr_accessor :pid, :room

    def report(_line) = !pid.nil? && room
    def due_at = nil
    def ended(*) = self.pid = nil
  end

  # A time that has passed and stays would make the event loop spin.
  def test_a_report_that_cannot_be_sent_is_not_due
    process = FakeProcess.new.tap { |fake| fake.pid, fake.room = 1, true }
    endpoint = endpoint_of(process)
    report(endpoint)
    assert_operator endpoint.due_at, :>, 0
    process.room = false
    report(endpoint, "changed")
    assert_nil endpoint.due_at
    process.room = true
    report(endpoint, "changed")
    refute_nil endpoint.due_at
    endpoint.ended(1, "exit 1")
    assert_nil endpoint.due_at
    report(endpoint, "changed")
    assert_nil endpoint.due_at
  end

  private

  def endpoint_of(process)
    Chaton::Supervisor::AdminEndpoint.new(Plan.new(nil, 60), inherited: nil, log: nil).tap do |endpoint|
      endpoint.instance_variable_set(:@server, process)
      endpoint.instance_variable_set(:@process, process)
    end
  end

  def report(endpoint, state = "ready") = endpoint.report(Controller.new({ state: state }))
end
