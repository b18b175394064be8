# frozen_string_literal: true

module Chaton
  module Config
    # Which generation of Sidekiq an application has, found out without loading it.
    module SidekiqFormat
      # Generations whose format can be written.
      GENERATIONS = (6..8)
      # Where there is none.
      DEFAULT = 7
      # Its line in a Gemfile.lock.
      LOCKED = /^    sidekiq \((\d+)[.)]/

      # @param root [String] the application's directory
      # @return [Integer]
      def self.format(root)
        generation = loaded || locked(root)
        generation ? generation.clamp(GENERATIONS.begin, GENERATIONS.end) : DEFAULT
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
