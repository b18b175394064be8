# frozen_string_literal: true

module Chaton
  module Config
    # The version of Sidekiq whose format is written by default: that of the application's gem, found without loading
    # it.
    module SidekiqFormat
      # Versions whose format can be written.
      VERSIONS = (6..8)
      # Without the gem.
      DEFAULT = 7
      # Its line in a Gemfile.lock.
      LOCKED = /^    sidekiq \((\d+)[.)]/

      def self.of(root)
        version = loaded || locked(root)
        version ? version.clamp(VERSIONS.begin, VERSIONS.end) : DEFAULT
      end

      def self.loaded = Gem.loaded_specs["sidekiq"]&.version&.segments&.first

      def self.locked(root)
        File.read(File.join(root, "Gemfile.lock"))[LOCKED, 1]&.to_i
      rescue SystemCallError, ArgumentError
        nil
      end
      private_class_method :loaded, :locked
    end
  end
end
