# frozen_string_literal: true

require "json"
require_relative "../web/development_certificate"
require_relative "nearest"
require_relative "types"

module Chaton
  module Config
    # TLS of a bind: its certificates, and what it asks of clients.
    #
    # certificates are pairs of paths, of the certificate and of its key; ca is the path of the authorities that sign
    # the certificates of clients, or nil; verify_mode is "none", "peer" or "force_peer"; min_version "1.2" or "1.3".
    BindTls = Struct.new(:certificates, :ca, :verify_mode, :min_version, keyword_init: true) do
      # @return [BindTls] with the certificate for localhost that the server makes
      def self.for_development
        certificates = [Web::DevelopmentCertificate.pair]
        new(certificates: certificates, verify_mode: "none", min_version: "1.2").freeze
      end

      def for_development?
        certificates == [Web::DevelopmentCertificate.pair]
      rescue ConfigError
        # A user without a home has no such certificate.
        false
      end

      # @param root [String] the directory relative paths start from
      def under(root)
        absolute = ->(path) { File.expand_path(path, root) }
        self.class.new(**to_h, certificates: certificates.map { |pair| pair.map(&absolute) },
                               ca: ca&.then(&absolute)).freeze
      end

      # @return [Boolean] whether clients are asked for a certificate
      def asks_clients? = verify_mode != "none"

      # @param kept [Array<String>] the texts of the files as they were read before, in the order of {#files}
      # @return [String] as the native extension takes it
      def document(kept = [])
        pairs = certificates.zip(kept.each_slice(2)).map { |(cert, key), texts| { cert: cert, key: key, kept: texts } }
        JSON.generate({ **to_h, certificates: pairs, ca_kept: ca && kept[2 * certificates.size] })
      end

      # @return [Array<String>] the paths of certificates and keys, and of ca
      def files = [*certificates.flatten, *ca]

      # @return [Array<Array, nil>] what changes when a file is written or replaced, or gets another owner or mode
      def stamps
        files.map do |path|
          stat = File.stat(path)
          [stat.ino, stat.size, stat.mtime, stat.ctime]
        rescue SystemCallError
          nil
        end
      end
    end

    module Types
      # The parameters of TLS in a bind.
      class TlsParameters < Base
        PARAMETERS = %w[cert key ca verify_mode min_version].freeze
        # Parameter => its values, the default first.
        WORDS = { "verify_mode" => %w[none peer force_peer], "min_version" => %w[1.2 1.3] }.freeze
        # Puma's parameters that need no effect: TLS 1.0 and 1.1 are never spoken.
        NEEDLESS = %w[no_tlsv1 no_tlsv1_1].freeze
        # Puma's other parameters => why they are not taken.
        REFUSED = {
          "cert_pem" => "is a text: write it to a file, and name that with cert",
          "key_pem" => "is a text: write it to a file that only the server may read, and name that with key",
          "key_password_command" => "decrypts a key: store it decrypted in a file that only the server may read",
          "ssl_cipher_filter" => "chooses ciphers: only safe ones are in use; remove it",
          "ssl_ciphersuites" => "chooses ciphers: only safe ones are in use; remove it",
          "verification_flags" => "changes how certificates of clients are checked: remove it",
          "reuse" => "tunes OpenSSL's sessions: tickets continue them; remove it",
          "keystore" => "belongs to JRuby: use cert and key",
          "keystore_pass" => "belongs to JRuby: use cert and key"
        }.freeze

        def initialize = super("parameters such as cert: \"app.pem\", key: \"app.key\"")

        # @param given [Array<Array(String, Object)>] `cert` and `key` may be repeated, or Arrays
        def cast(given)
          given = given.flat_map { |name, value| Array(value).map { |one| [name.to_s, one.to_s] } }
          given.each { |name, _| known(name) }
          words = WORDS.keys.to_h { |name| [name.to_sym, word(name, given.to_h)] }
          ca = given.to_h["ca"]
          return BindTls.new(certificates: pairs(given), ca: ca, **words).freeze if words[:verify_mode] == "none" || ca

          raise Mismatch, "has verify_mode #{words[:verify_mode]} and no ca:, the file of the authorities that may " \
                          "sign the certificates of clients"
        end

        private

        def known(name)
          return if PARAMETERS.include?(name) || NEEDLESS.include?(name)
          raise Mismatch, "has #{name}, which #{REFUSED[name]}" if REFUSED.key?(name)

          nearest = Nearest.to(name, PARAMETERS)
          raise Mismatch, "has an unknown parameter #{name.inspect}#{"; did you mean #{nearest}?" if nearest}"
        end

        def pairs(given)
          certs, keys = %w[cert key].map { |role| given.filter_map { |name, path| path if name == role } }
          raise Mismatch, "needs cert: and key:, the files of a certificate and of its key" if certs.empty?
          return certs.zip(keys) if certs.size == keys.size

          raise Mismatch, "has #{certs.size} cert: and #{keys.size} key:; each certificate needs its own key"
        end

        def word(name, given)
          value = given.fetch(name, WORDS.fetch(name).first)
          return value if WORDS.fetch(name).include?(value)

          raise Mismatch, "has #{name} #{value.inspect}; it must be #{WORDS.fetch(name).join(" or ")}"
        end
      end
    end
  end
end
