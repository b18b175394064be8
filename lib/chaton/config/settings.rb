# frozen_string_literal: true

require "json"
require "socket"
require_relative "../version"
require_relative "options"
require_relative "store_address"

module Chaton
  module Config
    # Settings of the admin endpoint. Each field is an option of `admin { }`, see docs/CONFIGURATION.md.
    AdminSettings = Struct.new(*Options.names(:admin), keyword_init: true) do
      # The bind whose Unix socket only its owner may open, unless the bind says otherwise.
      def self.private_bind(bind)
        return bind unless bind.scheme == "unix" && bind.mode.nil? && bind.umask.nil?

        bind.dup.tap { |one| one.umask = 0o177 }.freeze
      end

      def to_h = super.merge(admin_bind: admin_bind.map(&:to_s), admin_token: admin_token && "given")
    end

    # Settings of memory. Each field is an option of `memory { }`, see docs/CONFIGURATION.md; a size is an Integer of
    # bytes, and `eden` a Float if it is a multiple.
    MemorySettings = Struct.new(*Options.names(:memory), keyword_init: true) do
      # @return [Float, nil] growth of old objects that starts a full collection; nil: Ruby's own limits
      def longlife_growth
        case collect == :between && longlife
        when :settle then 1.0
        when Float then longlife
        end
      end
    end

    # Settings of the traces. Each field is an option of `traces { }`, see docs/CONFIGURATION.md.
    TracesSettings = Struct.new(*Options.names(:traces), keyword_init: true) do
      def to_h = super.merge(traces_headers: traces_headers&.transform_values { "given" })

      # The section of the engine document.
      def engine(plan, worker)
        { **Options.document(:traces, self),
          headers: traces_headers.to_a, resource: resource(plan, worker).to_a, version: VERSION }
      end

      private

      # By OpenTelemetry's semantic conventions.
      def resource(plan, worker)
        host = Socket.gethostname
        own = { "service.name" => plan.tag, "service.instance.id" => "#{host}:#{::Process.pid}", "host.name" => host,
                "deployment.environment.name" => plan.environment, "chaton.worker" => worker.to_s,
                "process.runtime.name" => RUBY_ENGINE, "process.runtime.version" => RUBY_VERSION,
                "telemetry.sdk.name" => "chaton", "telemetry.sdk.language" => "rust",
                "telemetry.sdk.version" => VERSION }
        own.merge(traces_attributes.to_h, { "service.name" => traces_service_name }.compact)
      end
    end

    # Settings of event streams. Each field is an option of `live { }`, see docs/CONFIGURATION.md; `file` is that of the
    # messages, or of those that wait for a Redis; `redis` tells how to reach that, as the native extension takes it;
    # `drain_s` is the time over which a worker that stops closes its streams.
    LiveSettings = Struct.new(*Options.names(:live), :file, :redis, :drain_s, keyword_init: true) do
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
