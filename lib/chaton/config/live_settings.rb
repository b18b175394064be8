# frozen_string_literal: true

require "json"
require_relative "options"
require_relative "store_address"

module Chaton
  module Config
    # Settings of event streams. Each field is an option of `live { }`, see docs/CONFIGURATION.md; `file` is that of the
    # messages, or of those that wait for a Redis; `redis` tells how to reach that, as the native extension takes it;
    # `drain_s` is the time over which a worker that stops closes its streams.
    LiveSettings = Struct.new(*Options.names(:live), :file, :redis, :drain_s, keyword_init: true) do
      # @param root [String] the application's directory
      # @param jobs [JobsSettings] which may name a Redis
      # @return [self] with its store
      def at(root, environment, jobs)
        own = StoreAddress.under("sqlite://storage/chaton_#{environment}_live.db", root)
        self.live_store ||= StoreAddress.redis?(jobs.store) ? jobs.store : own
        self.live_store = StoreAddress.under(live_store, root)
        self.file = StoreAddress.file(live_store) || StoreAddress.file(own)
        self.redis = redis_at(live_store, jobs.store_settings) unless StoreAddress.file(live_store)
        self
      end

      # @return [Hash{Symbol=>Object}] without secrets
      def to_h = super.except(:redis).merge(live_store: StoreAddress.shown(live_store))

      # @return [String] JSON, as the native extension takes it
      def document
        JSON.generate({ path: file, redis: redis, **Options.document(:live, self), drain_s: drain_s })
      end

      # An error message must not contain a password.
      def inspect = "#<event streams at #{StoreAddress.shown(live_store)}>"

      private

      def redis_at(url, jobs)
        user = %i[username password sentinel_username sentinel_password].map { |name| jobs[name] if jobs[:url] == url }
        { url: url, user: user.first(2), sentinel_user: user.last(2),
          tls_files: jobs.values_at(:tls_ca_file, :tls_cert_file, :tls_key_file), tls_verify: jobs[:tls_verify],
          timeouts_s: jobs.values_at(:connect_timeout_s, :answer_timeout_s) }.freeze
      end
    end
  end
end
