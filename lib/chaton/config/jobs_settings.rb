# frozen_string_literal: true

require_relative "../errors"
require_relative "options"

module Chaton
  module Config
    # Settings of background jobs. `store_settings` are those of the store, as `Native::JobsClient.new` takes them in
    # JSON; `threads` and `shutdown_timeout_s` apply to workers that run only jobs, and are nil where the plan's own
    # values apply; the others are options of `jobs { }`, see docs/CONFIGURATION.md.
    JobsSettings = Struct.new(
      *Options.names(:jobs).map { |name| Options[name] }.reject { |option| option.engine == %i[jobs store] }
              .map(&:written).-(%i[store cron beat_s]),
      :store_settings, :mode, :crons, :format, :store_given, :application, keyword_init: true
    ) do
      def store = store_settings.fetch(:url)

      # @return [Float] time between two heartbeats, of which a lease has several, because some may be late; they also
      #   show how many jobs run, which must not be old
      def beat_s = [store_settings.fetch(:lease_s) / 5, 3.0].min

      # @return [String] the same without user and password
      def store_shown = StoreAddress.shown(store)

      # @return [String, nil] the file of a SQLite store
      def store_file = StoreAddress.file(store)

      # @return [Hash{Symbol=>Object}] JSON-able, without secrets
      def to_h
        secrets = store_settings.slice(:password, :sentinel_password, :listen)
        secrets.transform_values! { |value| Options[:password].type.show(value) }
        store = store_settings.merge(url: store_shown, **secrets)
        super.merge(store_settings: store, crons: crons.map(&:to_h), threads: threads&.to_s)
      end

      # @return [Boolean] whether no source names queues
      def queues_default? = queues.equal?(QueueSelection::DEFAULT.queues)

      # @param weights [Hash{String=>Integer}] as in Sidekiq: 0 where the order counts, 1 everywhere for a random order
      # @return [JobsSettings] with these queues
      # @raise [ConfigError]
      def with_queues(weights)
        list = weights.values.all?(0) ? weights.keys : weights.to_a
        list = [{ random: weights.keys }] if weights.values.all?(1)
        selection = Types::QueueList.new.cast(*list)
        dup.tap { |copy| copy.queues, copy.mode = selection.queues, selection.mode }.freeze
      rescue Types::Mismatch => e
        raise ConfigError, "the queues that the application sets for Sidekiq #{e.message}"
      end

      # @param given [Hash{Symbol=>Object}] options of the store, checked
      # @return [JobsSettings] with this store
      def with_store(given, root, environment)
        url = StoreAddress.of_jobs(given.fetch(:store), root, environment)
        lease_s = JobsBuilder.lease_s(url) unless StoreAddress.file(url).nil? == store_file.nil?
        further = given.except(:store).to_h do |name, value|
          [name, value && name.to_s.end_with?("_file") ? File.expand_path(value, root) : value]
        end
        settings = { **store_settings, url: url, **{ lease_s: lease_s }.compact, **further }
        dup.tap { |copy| copy.store_settings, copy.store_given = settings.freeze, true }.freeze
      end

      # An error message must not contain a password.
      def inspect = "#<jobs at #{store_shown}>"
    end

    # Makes {JobsSettings} from option values.
    class JobsBuilder
      # Options that an application may set with the store in Ruby.
      IN_RUBY = [:store, *Options.in(:jobs).select { |option| option.engine == %i[jobs store] }.map(&:name) -
        %i[format store_listen]].freeze
      # Lease on Redis and PostgreSQL, where only heartbeats tell that a machine has died.
      REDIS_LEASE_S = 15.0
      # Lease on SQLite, where the kernel tells of dead processes, and all of them may wait for a slow disk.
      FILE_LEASE_S = 60.0

      # @param store [String, nil] the store's address; nil: a file
      # @return [Float] its lease, unless one is set
      def self.lease_s(store)
        store.nil? || StoreAddress.file(store) ? FILE_LEASE_S : REDIS_LEASE_S
      end

      # @param sidekiq_file [String, nil] the file that was read
      # @param store_given [Boolean] whether a source names the store
      # @yieldparam name [Symbol] an option
      # @yieldreturn [Object] its value
      def initialize(root, sidekiq_file:, store_given:, &value)
        @root = root
        @sidekiq_file = sidekiq_file
        @store_given = store_given
        @value = value
      end

      def settings
        values = Options.names(:jobs).to_h { |name| [Options[name].written, @value.call(name)] }
        queues = values[:queues] || QueueSelection::DEFAULT
        JobsSettings.new(
          **values.slice(*JobsSettings.members),
          store_settings: store, queues: queues.queues, mode: queues.mode, load: paths(values[:load]),
          crons: Array(values[:cron]).freeze, labels: Array(values[:labels]).flatten.freeze,
          format: store.fetch(:format), sidekiq_file: @sidekiq_file, store_given: @store_given,
          application: @value.call(:tag).to_s.freeze
        ).freeze
      end

      private

      def store
        @store ||= begin
          url = StoreAddress.of_jobs(@value.call(:store), @root, @value.call(:environment))
          settings = Options.document(:jobs, :store, @value)
          files = settings.slice(:tls_ca_file, :tls_cert_file, :tls_key_file).transform_values { |path| absolute(path) }
          { **settings, **files, url: url, lease_s: settings[:lease_s] || JobsBuilder.lease_s(url) }.freeze
        end
      end

      def paths(given) = Array(given).flatten.map { |path| absolute(path) }.freeze

      def absolute(path) = path && File.expand_path(path, @root).freeze
    end
  end
end
