# frozen_string_literal: true

# Ruby loads this file when the module Sidekiq is opened or named for the first time; see
# {Chaton::Jobs::SidekiqGem.in_server}.
module Sidekiq
end
Chaton::Jobs::SidekiqGem.be_server
# Named before the gem was required, as by `if defined?(Sidekiq)`.
gem = Gem.loaded_specs["sidekiq"]&.full_gem_path
require "sidekiq" unless gem && caller_locations.any? { |one| one.absolute_path.to_s.start_with?("#{gem}/") }
