# frozen_string_literal: true

require_relative "../errors"
require_relative "options"

module Chaton
  module Config
    # Settings of background jobs. `store_settings` are those of the store, as `Native::JobsClient.new` takes them in
    # JSON; `threads` and `shutdown_timeout_s` apply to workers that run only jobs, and are nil where the plan's own
    # values apply.
    JobsSettings = Struct.new(
      :store_settings, :queues, :mode, :load, :crons, :threads, :shutdown_timeout_s, :retries_max, :labels, :format,
      :prefetch_s, :prefetch_max, :ack_delay_s, :beat_s, :catch_up_s,
      :claim_turn_s, :log_jobs_per_s, :sidekiq_file, :store_given, :application, keyword_init: true
    ) do
      # @return [String] the store's address
      def store = store_settings.fetch(:url)

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
      # @param root [String] the application's directory
      # @param environment [String]
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
      #
      # @return [String]
      def inspect = "#<jobs at #{store_shown}>"
    end

    # Makes {JobsSettings} from option values.
    class JobsBuilder
      # Options that go into {JobsSettings} unchanged.
      PLAIN = %i[retries_max prefetch_s prefetch_max ack_delay_s beat_s catch_up_s claim_turn_s
                 log_jobs_per_s].freeze
      # Options that go into the store's settings unchanged.
      OF_STORE = %i[username password sentinel_username sentinel_password tls_verify connect_timeout_s answer_timeout_s
                    reliable_push reliable_push_timeout_s durable lock_timeout_s dead_max dead_age_s].freeze
      # Options that an application may set with the store in Ruby.
      IN_RUBY = [:store, :lease_s, :tls_ca_file, :tls_cert_file, :tls_key_file, *OF_STORE].freeze
      # Lease on Redis and PostgreSQL, where only heartbeats tell that a machine has died.
      REDIS_LEASE_S = 15.0
      # Lease on SQLite, where the kernel tells of dead processes, and all of them may wait for a slow disk.
      FILE_LEASE_S = 60.0

      # @param store [String, nil] the store's address; nil: a file
      # @return [Float] its lease, unless one is set
      def self.lease_s(store)
        store.nil? || StoreAddress.file(store) ? FILE_LEASE_S : REDIS_LEASE_S
      end

      # @param root [String] the application's directory
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

      # @return [JobsSettings]
      def settings
        queues = @value.call(:queues) || QueueSelection::DEFAULT
        JobsSettings.new(
          store_settings: store, queues: queues.queues, mode: queues.mode, load: paths(:load),
          crons: Array(@value.call(:cron)).freeze,
          threads: @value.call(:jobs_threads), shutdown_timeout_s: @value.call(:jobs_shutdown_timeout_s),
          labels: Array(@value.call(:labels)).flatten.freeze, format: store.fetch(:format),
          sidekiq_file: @sidekiq_file, store_given: @store_given, application: @value.call(:tag).to_s.freeze,
          **PLAIN.to_h { |name| [name, @value.call(name)] }
        ).freeze
      end

      private

      def store
        url = StoreAddress.of_jobs(@value.call(:store), @root, @value.call(:environment))
        @store ||= {
          url: url, lease_s: @value.call(:lease_s) || JobsBuilder.lease_s(url),
          **%i[tls_ca_file tls_cert_file tls_key_file].to_h { |name| [name, absolute(@value.call(name))] },
          format: @value.call(:format), listen: @value.call(:store_listen),
          **OF_STORE.to_h { |name| [name, @value.call(name)] }
        }.freeze
      end

      def paths(name) = Array(@value.call(name)).flatten.map { |path| absolute(path) }.freeze

      def absolute(path) = path && File.expand_path(path, @root).freeze
    end
  end
end
