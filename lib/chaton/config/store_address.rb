# frozen_string_literal: true

require_relative "database_entry"
require_relative "types"

module Chaton
  module Config
    # Functions on the address of a job store.
    module StoreAddress
      # Scheme of a path.
      SQLITE = "sqlite://"

      # @param settings [Hash{Symbol=>Object}] :environment
      # @return [String] the store of the environment, where none is set
      def self.default(settings)
        "#{SQLITE}storage/chaton_#{settings.fetch(:environment)}.db".freeze
      end

      # @param root [String] the directory a relative path starts from
      def self.under(url, root)
        url.start_with?(SQLITE) ? "#{SQLITE}#{File.expand_path(url.delete_prefix(SQLITE), root)}".freeze : url
      end

      # The address of a store of jobs, which may be the database of Rails.
      # @param environment [String] whose entry of database.yml `:active_record` is
      # @raise [ConfigError] when there is no such entry
      def self.of_jobs(url, root, environment)
        url == DatabaseEntry::NAME ? DatabaseEntry.new(root, environment).url.freeze : under(url, root)
      end

      # @param url [String] with an absolute path
      # @return [String, nil] the file of a SQLite store
      def self.file(url)
        url.delete_prefix(SQLITE) if url.start_with?(SQLITE)
      end

      # @return [Boolean] whether Sidekiq finds jobs there
      def self.redis?(url) = !url.start_with?(SQLITE, "postgres")

      # @return [String] without user and password
      def self.shown(url) = url.sub(%r{(?<=://).*@}, "***@")
    end

    module Types
      # `store "sqlite://storage/chaton.db"`, `store "redis://127.0.0.1:6379/0"`.
      class StoreUrl < Base
        # Schemes of an address.
        SCHEMES = %w[sqlite redis rediss redis+sentinel rediss+sentinel unix postgres postgresql].freeze

        def initialize
          super("sqlite://PATH, redis://HOST:PORT/DB, rediss://HOST:PORT/DB (TLS), " \
                "redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB (or rediss+sentinel), unix://PATH?db=N (a socket of " \
                "Redis), postgres://USER@HOST/DATABASE or :active_record (the PostgreSQL database of Rails)")
        end

        def cast(value)
          return DatabaseEntry::NAME if value.to_s == DatabaseEntry::NAME

          scheme, rest = value.to_s.split("://", 2)
          return value.to_s.dup.freeze if SCHEMES.include?(scheme) && rest.to_s.match?(/\A[^?\s]/)

          raise Mismatch, "must be #{rule}, not #{StoreAddress.shown(value.to_s).inspect}#{hint(value.to_s, scheme)}"
        end

        def show(value) = StoreAddress.shown(value)

        private

        def hint(value, scheme)
          case scheme
          when "valkey", "valkeys" then ": write redis#{"s" if scheme.end_with?("s")}://, which Valkey understands"
          when "postgis" then ": write postgres://"
          when "sqlite3", "file" then ": write sqlite://"
          else value.match?(%r{\A[\w./-]+\.(db|sqlite3?)\z}) ? ": write sqlite://#{value}" : ""
          end
        end
      end

      # `store "sqlite://storage/live.db"`, of messages.
      class MessageStore < StoreUrl
        # A file, or an address of Redis.
        ADDRESS = %r{\A(?:sqlite://[^?\s]*[^/?\s]|(?:rediss?(?:\+sentinel)?|unix)://\S+)\z}

        def initialize
          super
          @rule = "sqlite://PATH, or an address of Redis as in jobs { store }: redis://HOST:PORT/DB"
        end

        def cast(value)
          return value.to_s.dup.freeze if value.to_s.match?(ADDRESS)

          raise Mismatch, "must be #{rule}, not #{StoreAddress.shown(value.to_s).inspect}"
        end
      end
    end
  end
end
