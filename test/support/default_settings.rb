# frozen_string_literal: true

require "json"

# The engines' document without any configuration, by part, as `rake docs` writes it.
DEFAULT_SETTINGS = JSON.parse(File.read(File.expand_path("../../crates/default_settings.json", __dir__)),
                              symbolize_names: true).freeze
