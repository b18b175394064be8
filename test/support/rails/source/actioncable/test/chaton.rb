# frozen_string_literal: true

require_relative "client_test"
require "chaton/server"

# Rails' tests of WebSockets, with Chaton in the place of Puma.
class ClientTest
  def with_puma_server(rack_app = ActionCable.server, _port = nil)
    server = Chaton::Server.new(rack_app).start
    yield server.port
  ensure
    server&.stop
  end
end
