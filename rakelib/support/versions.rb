# frozen_string_literal: true

require "json"

# Prints, as JSON, the versions of what the tests run with.
GEMS = { "Rack" => "rack", "Rails" => "railties", "Puma" => "puma", "Sidekiq" => "sidekiq" }.freeze
versions = GEMS.transform_values { |name| Gem::Specification.find_all_by_name(name).map(&:version).max&.to_s }.compact
ruby = "#{RUBY_VERSION}#{"dev (#{RUBY_REVISION[0, 10]})" if RUBY_PATCHLEVEL.negative?}"
puts JSON.generate("Ruby" => ruby, **versions, "rustc" => `rustc --version`[/[\d.]+/])
