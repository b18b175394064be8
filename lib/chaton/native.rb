# frozen_string_literal: true

# The only place that loads the shared object. Everything it defines is below
# {Chaton::Native}; `sig/native.rbs` lists it.
begin
  require "chaton/chaton_native"
rescue LoadError => e
  raise LoadError, "Chaton's native extension is not built for this Ruby (#{e.message}). " \
                   "Build it with `rake compile` in a checkout, or install the gem anew."
end
