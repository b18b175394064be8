# frozen_string_literal: true

require_relative "chaton/errors"
require_relative "chaton/version"

# A Ruby application server with its IO in Rust. Requiring it starts nothing and loads neither the native
# extension nor Rack; what is named below is loaded when it is first used.
module Chaton
  autoload :CLI, "#{__dir__}/chaton/cli"
  autoload :Config, "#{__dir__}/chaton/config"
  autoload :RackHandler, "#{__dir__}/chaton/rack_handler"
  autoload :Single, "#{__dir__}/chaton/single"
  autoload :Supervisor, "#{__dir__}/chaton/supervisor"
end
