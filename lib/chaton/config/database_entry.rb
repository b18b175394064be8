# frozen_string_literal: true

require_relative "../errors"

module Chaton
  module Config
    # The entry of Rails' config/database.yml that `store :active_record` means: the first one of the environment (with
    # several databases that is the primary one). It is read without loading ActiveRecord, which a supervisor must not
    # do; DATABASE_URL comes before the file, as in Rails.
    class DatabaseEntry
      # The value of `store`.
      NAME = "active_record"
      # Adapters of PostgreSQL.
      ADAPTERS = %w[postgresql postgis].freeze
      # Schemes of such a database.
      SCHEMES = %w[postgres postgresql postgis].freeze
      # Keys that go into the address as they are.
      PARAMETERS = %i[sslmode sslrootcert sslcert sslkey connect_timeout application_name target_session_attrs].freeze

      def initialize(root, environment, env: ENV)
        @file = File.join(root, "config", "database.yml")
        @environment = environment
        @env = env
      end

      # @return [String] the address of the database
      # @raise [ConfigError] when there is none, or it is no PostgreSQL
      def url
        url = @env["DATABASE_URL"].to_s
        return checked(url) unless url.empty?

        entry = read
        return checked(entry[:url].to_s) unless entry[:url].to_s.empty?

        adapter = entry[:adapter].to_s
        ADAPTERS.include?(adapter) ? address(entry) : refuse("its adapter is #{adapter.inspect}")
      end

      private

      def read
        # Every start and every command loads this class, and few of them read a file.
        require "erb"
        require "yaml"
        text = ERB.new(File.read(@file), trim_mode: "-").result
        entry = YAML.safe_load(text, aliases: true, symbolize_names: true)&.fetch(@environment.to_sym, nil)
        entry = entry.values.first if entry.is_a?(Hash) && entry.values.first.is_a?(Hash)
        entry.is_a?(Hash) ? entry : refuse("it has no entry for the environment #{@environment}")
      rescue Errno::ENOENT
        refuse("the file is missing, and DATABASE_URL is not set")
      rescue Psych::SyntaxError, Psych::BadAlias, Psych::DisallowedClass => e
        refuse(e.message)
      end

      def address(entry)
        host = entry[:host].to_s
        socket = host.empty? || host.start_with?("/")
        user = entry[:username] || entry[:user]
        login = [user, entry[:password]].compact.map { |word| ERB::Util.url_encode(word.to_s) }.join(":")
        parameters = entry.slice(*PARAMETERS)
        parameters[:host] = host if socket && !host.empty?
        parameters[:port] = entry[:port] if socket && entry[:port]
        server = socket ? "" : "#{host}#{":#{entry[:port]}" if entry[:port]}"
        "postgres://#{"#{login}@" unless login.empty?}#{server}/#{ERB::Util.url_encode(entry[:database].to_s)}" \
          "#{query(parameters)}"
      end

      def query(parameters)
        pairs = parameters.map { |name, value| "#{name}=#{ERB::Util.url_encode(value.to_s)}" }
        pairs.empty? ? "" : "?#{pairs.join("&")}"
      end

      def checked(url)
        scheme, rest = url.split("://", 2)
        return "postgres://#{rest}" if SCHEMES.include?(scheme)

        refuse("its scheme is #{scheme.inspect}")
      end

      def refuse(why)
        raise ConfigError, "jobs { store :active_record } needs a PostgreSQL database in #{@file} or DATABASE_URL: " \
                           "#{why}; name another store, for example store \"sqlite://storage/jobs.db\""
      end
    end
  end
end
