# frozen_string_literal: true

module Bench
  # Measuring garbage collection: Chaton beside Puma, and beside itself.
  module Gc
    APPS = File.expand_path("apps", __dir__)
    # Templates over 450,000 objects.
    CATALOGUE = File.join(APPS, "catalogue.ru")
    # Nothing but objects.
    ALLOCATIONS = File.join(APPS, "allocations.ru")
    SINATRA = File.expand_path("../../examples/sinatra/config.ru", __dir__)
  end
end
