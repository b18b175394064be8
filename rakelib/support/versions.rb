# frozen_string_literal: true

require "json"

# Prints, as JSON, the versions of what the tests run with.
GEMS = { "Rack" => "rack", "Rails" => "railties", "Puma" => "puma", "Sidekiq" => "sidekiq" }.freeze
versions = GEMS.transform_values { |name| Gem::Specification.find_all_by_name(name).map(&:version).max&.to_s }.compact
# bin/matrix installs a Ruby that is not released into a folder with its commit: ruby-4.1.0dev-120c8fa88c.
ruby = RUBY_PATCHLEVEL.negative? ? RbConfig::CONFIG["prefix"][/[\d.]+dev.*/] : RUBY_VERSION
puts JSON.generate("Ruby" => ruby, **versions, "rustc" => `rustc --version`[/[\d.]+/])
