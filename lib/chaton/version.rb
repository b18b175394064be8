# frozen_string_literal: true

# A Ruby application server with its IO in Rust.
module Chaton
  # Of this library.
  VERSION = "0.1.0"
end
