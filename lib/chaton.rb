# frozen_string_literal: true

require_relative "chaton/errors"
require_relative "chaton/version"

# Requiring "chaton" is light on purpose: it starts nothing and loads neither the native extension nor Rack. The
# command line is "chaton/cli", configurations are "chaton/config"; an engine is loaded by what runs it.
