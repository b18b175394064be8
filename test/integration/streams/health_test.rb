# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/streams_test_case"

# /ready of workers that read streams.
class StreamsHealthTest < Minitest::Test
  include StreamsTest

  def kind = :local

  def time_limit_s = 240

  def test_streams_are_ready_when_their_groups_are_joined
    create
    server = boot_streams(config: "admin { bind \"unix://admin.sock\" }")
    ready(server, 200)
    server.signal("TSTP")
    why = ready(server, 503).reasons
    assert_match(/streams is not ready: worker 0 reads with 0 of its 1 consumer groups/, why)
    assert_equal 200, AdminClient.new(server.path("admin.sock")).get("/live").status
    assert_equal 0, server.stop(timeout_s: 60)
  end

  private

  def ready(server, status)
    server.eventually("it is #{status}", timeout_s: 60) do
      answer = AdminClient.new(server.path("admin.sock")).get("/ready?role=streams")
      answer if answer.status == status
    end
  end
end
