# frozen_string_literal: true

require_relative "store_address"
require_relative "types"

module Chaton
  module Config
    # Functions on the address of a log of records.
    module BrokerAddress
      # Scheme of a directory on this machine, with a log in it.
      DIRECTORY = "log://"
      # File of the log in a directory.
      FILE = "log.db"

      # Where the log of all environments was by default.
      FORMER = "storage/streams"
      # Files by which it is known: of a database, and of the version before, which the log refuses.
      MARKS = [FILE, "format"].freeze
      private_constant :FORMER, :MARKS

      # @param settings [Hash{Symbol=>Object}] :environment, :root
      # @return [String] the log of the environment, where none is set; the one of a former version if there is one
      def self.default(settings)
        file = "storage/chaton_#{settings.fetch(:environment)}_log.db"
        root = settings.fetch(:root)
        former = MARKS.any? { |mark| File.exist?(File.join(root, FORMER, mark)) } && !File.exist?(File.join(root, file))
        (former ? "#{DIRECTORY}#{FORMER}" : "#{StoreAddress::SQLITE}#{file}").freeze
      end

      # @param root [String] the directory a relative path starts from
      def self.under(url, root)
        return StoreAddress.under(url, root) unless url.start_with?(DIRECTORY)

        "#{DIRECTORY}#{File.expand_path(url.delete_prefix(DIRECTORY), root)}".freeze
      end

      # @param url [String] with an absolute path
      # @return [String, nil] the file of a log on this machine
      def self.file(url)
        return StoreAddress.file(url) unless url.start_with?(DIRECTORY)

        File.join(url.delete_prefix(DIRECTORY), FILE)
      end
    end

    module Types
      # `broker "sqlite://storage/log.db"`, `broker "kafka://host:9092,other:9092"`.
      class BrokerUrl < Base
        # A host, or an IPv6 address in brackets, and a port.
        HOST = /(?:\[[\h:.%]+\]|[\w.-]+)(?::\d{1,5})?/
        # Several of them.
        HOSTS = /\A#{HOST}(?:,#{HOST})*\z/
        # Schemes of an address of Kafka.
        KAFKA = %w[kafka kafka+ssl].freeze

        def initialize
          super("sqlite://PATH (a file of this machine), log://PATH (a directory), kafka://HOST:PORT,HOST:PORT or " \
                "kafka+ssl://HOST:PORT (TLS)")
        end

        def cast(value)
          text = value.to_s
          scheme, rest = text.split("://", 2)
          return text.dup.freeze if %w[sqlite log].include?(scheme) && rest.to_s.match?(/\A[^\s?]+\z/)
          return text.chomp("/").freeze if KAFKA.include?(scheme) && rest.to_s.chomp("/").match?(HOSTS)

          # The part before an @ may contain a password.
          raise Mismatch, "must be #{rule}, not #{text.sub(/.*@/, "***@").inspect}#{hint(text, scheme, rest)}"
        end

        private

        def hint(text, scheme, rest)
          return ": username and password are options of their own" if text.include?("@")
          return ": write kafka+ssl://#{rest}" if %w[ssl sasl_ssl kafkas kafka-ssl].include?(scheme)
          return ": write sqlite://#{rest}" if %w[file sqlite3].include?(scheme)
          return ": write kafka://#{text}" if rest.nil? && text.match?(/\A[\w.-]+:\d+(,|\z)/)

          rest.nil? && text.include?("/") ? ": write log://#{text}" : ""
        end
      end
    end
  end
end
