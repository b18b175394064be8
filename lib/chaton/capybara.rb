# frozen_string_literal: true

require "capybara"
require_relative "server"

# System tests on the server of production: `require "chaton/capybara"` in the test helper, and
# `Capybara.server = :chaton`.
Capybara.register_server :chaton do |app, port, host, **options|
  Chaton::Server.new(app, port: port, host: host, **options).start
  # Capybara runs this block on a thread of its own, which serves as long as it lives.
  sleep
end
