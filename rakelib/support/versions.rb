# frozen_string_literal: true

require "json"

# Prints, as JSON, the versions of what the tests run with.
GEMS = { "Rack" => "rack", "Rails" => "railties", "Puma" => "puma", "Sidekiq" => "sidekiq" }.freeze
versions = GEMS.transform_values { |name| Gem::Specification.find_all_by_name(name).map(&:version).max&.to_s }.compact
puts JSON.generate("Ruby" => RUBY_VERSION, **versions, "rustc" => `rustc --version`[/[\d.]+/])
