# frozen_string_literal: true

# Statistics come from Rust as JSON.
require "json"

module Chaton
  # The classes of the shared object, which are the boundary to the engines. `sig/native.rbs` has their types.
  module Native
  end
end

# The only place that loads the shared object.
begin
  require "chaton/chaton_native"
rescue LoadError => e
  raise LoadError, "Chaton's native extension is not built for this Ruby (#{e.message}). " \
                   "Build it with `rake compile` in a checkout, or install the gem anew."
end
