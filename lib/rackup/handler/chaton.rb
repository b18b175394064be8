# frozen_string_literal: true

# Rack 3, by its companion rackup, looks here for `-s chaton`.
require "rackup/handler"
require "chaton/rack_handler"

Rackup::Handler.register(:chaton, Chaton::RackHandler)
