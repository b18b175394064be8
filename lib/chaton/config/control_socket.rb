# frozen_string_literal: true

module Chaton
  module Config
    # Where the control socket is, unless it is set. Commands that are typed in the application's directory find it
    # there without knowing the server's command line.
    module ControlSocket
      # Servers that a Procfile starts in one directory have sockets of their own, because the roles differ.
      NAMES = { [] => "chaton", %i[jobs] => "chaton-jobs", %i[streams] => "chaton-streams",
                %i[jobs streams] => "chaton-jobs-streams" }.freeze
      # Where Capistrano and its like make a directory for each release, and one that all of them share beside it.
      RELEASES, SHARED = %w[releases shared].freeze

      # @param settings [Hash{Symbol=>Object}] :root and :roles of the server
      def self.default(settings)
        roles = settings.fetch(:roles)
        path(settings.fetch(:root), roles.include?(:web) ? [] : %i[jobs streams] & roles)
      end

      # @return [Array<String>] the path of each server that may run there
      def self.all(root) = NAMES.keys.map { |roles| path(root, roles) }

      def self.path(root, roles) = File.join(lasting(root), "tmp/#{NAMES.fetch(roles)}.sock")

      # A socket in a release is out of reach once the next one takes its place.
      #
      # @return [String] a directory that stays
      def self.lasting(root)
        releases, = File.split(File.realpath(root))
        shared = File.expand_path("../#{SHARED}", releases)
        File.basename(releases) == RELEASES && File.directory?(shared) ? shared : root
      rescue SystemCallError
        root
      end
      private_class_method :path, :lasting
    end
  end
end
