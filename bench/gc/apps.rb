# frozen_string_literal: true

module Bench
  # Garbage collection: Chaton beside Puma, and beside itself with other settings.
  module Gc
    APPS = File.expand_path("apps", __dir__)
    # Renders templates with 450,000 live objects in memory.
    CATALOGUE = File.join(APPS, "catalogue.ru")
    # Makes and parses documents of up to 2 MB.
    PAYLOADS = File.join(APPS, "payloads.ru")
    # Only allocates.
    ALLOCATIONS = File.join(APPS, "allocations.ru")
    SINATRA = File.expand_path("../../examples/sinatra/config.ru", __dir__)
  end
end
