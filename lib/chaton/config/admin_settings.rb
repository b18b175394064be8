# frozen_string_literal: true

require_relative "options"

module Chaton
  module Config
    # Settings of the admin endpoint. Each field is an option of `admin { }`, see docs/CONFIGURATION.md.
    AdminSettings = Struct.new(*Options.names(:admin), keyword_init: true) do
      # The bind whose Unix socket only its owner may open, unless the bind says otherwise.
      def self.private_bind(bind)
        return bind unless bind.scheme == "unix" && bind.mode.nil? && bind.umask.nil?

        bind.dup.tap { |one| one.umask = 0o177 }.freeze
      end

      # @return [Hash{Symbol=>Object}] JSON-able
      def to_h = super.merge(admin_bind: admin_bind.map(&:to_s), admin_token: admin_token && "given")
    end
  end
end
