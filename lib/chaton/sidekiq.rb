# frozen_string_literal: true

require_relative "../chaton"
require_relative "jobs"

# Sidekiq's names without the gem, for an application that leaves it: its job classes stay as they are. What is not
# here raises, or is a NameError; nothing pretends. Where the gem is there, it stays what it is, and this file only
# says so.
if defined?(Sidekiq::VERSION) || Gem.loaded_specs.key?("sidekiq")
  unless defined?(Sidekiq::CHATON)
    warn "chaton/sidekiq: the sidekiq gem is there, so its own classes are used; take one of them out of the " \
         "application", uplevel: 1
  end
else
  require_relative "sidekiq/module"
end
