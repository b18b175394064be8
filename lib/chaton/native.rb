# frozen_string_literal: true

# Statistics come from Rust as JSON.
require "json"
require_relative "native_library"

module Chaton
  # The classes of the shared object, which are the boundary to the engines. `sig/native.rbs` has their types.
  module Native
  end
end

# The only place that loads the shared object.
Chaton::NativeLibrary.new.load { |path| require path }
