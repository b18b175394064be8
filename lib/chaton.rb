# frozen_string_literal: true

require_relative "chaton/core"

# An application requires this file, with Bundler, after Rails. The `chaton` command does not, so that in each process
# the Railtie is there at the moment that Rails expects.
if defined?(Rails::Railtie)
  require_relative "chaton/railtie"
elsif defined?(ActiveSupport) && ActiveSupport.respond_to?(:on_load)
  require_relative "chaton/rails"
end
