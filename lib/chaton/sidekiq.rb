# frozen_string_literal: true

require_relative "core"
require_relative "jobs"

# Sidekiq's names without the gem, for an application that drops it: its job classes stay as they are. Names that are
# missing here raise. If the gem is loaded, this file only warns.
Chaton::Jobs::SidekiqGem.forget unless Gem.loaded_specs.key?("sidekiq")
if Chaton::Jobs::SidekiqGem.loaded? || Gem.loaded_specs.key?("sidekiq")
  warn "chaton/sidekiq: the sidekiq gem is loaded, so its own classes are used; take one of them out of the " \
       "application", uplevel: 1
else
  require_relative "sidekiq/module"
end
