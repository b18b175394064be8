# frozen_string_literal: true

require "forwardable"

module Chaton
  module Streams
    # What an application has set for streams: the broker, and handlers of errors.
    class Setup
      extend Forwardable

      # See the methods of {Streams}.
      def_delegators "Chaton::Streams", :error_handlers, :on_delivery_error, :logger, :logger=

      # Keyword of {#broker} => its option, where they differ.
      OPTIONS = { username: :streams_username, password: :streams_password, tls_ca_file: :streams_tls_ca_file }.freeze

      # @return [Hash{Symbol=>Object}] what {#broker} was given
      # @private
      attr_reader :given

      def initialize
        @given = {}
      end

      # Names the broker where the application does, for an address or a password that config/chaton.rb cannot know. It
      # goes before the `broker` of that file, in every process that loads the application.
      #
      # @param url [String] as in config/chaton.rb
      # @param settings [Hash{Symbol=>Object}] `username:`, `password:`, `mechanism:`, `tls_ca_file:`, `kafka:`
      # @raise [ConfigError]
      def broker(url, **settings)
        settings = settings.transform_keys { |name| OPTIONS.fetch(name, name) }
        @given = Chaton.check_settings(:streams, { broker: url, **settings })
        Streams.swap_client(nil) if Streams.setup.equal?(self)
      end
    end
  end
end
