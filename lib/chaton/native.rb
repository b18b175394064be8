# frozen_string_literal: true

# Statistics come from Rust as JSON.
require "json"

module Chaton
  # What the shared object defines: the boundary to the engines. `sig/native.rbs`
  # lists it with its types.
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
