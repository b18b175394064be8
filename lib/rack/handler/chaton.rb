# frozen_string_literal: true

# Rack 2 looks here for `-s chaton`.
require "rack/handler"
require "chaton/rack_handler"

Rack::Handler.register(:chaton, Chaton::RackHandler)
