# frozen_string_literal: true

require "etc"
require_relative "../errors"

module Chaton
  module Web
    # The certificate of `tls :dev`, for localhost. It is made on first use and renewed before it expires, by an
    # authority of this user that may sign for localhost alone.
    class DevelopmentCertificate
      DAY_S = 86_400
      AUTHORITY_DAYS = 3650
      # Browsers accept no certificate that is valid for longer than 398 days.
      DAYS = 397
      # It is renewed when it has less time left.
      RENEW_DAYS = 30
      NAMES = "DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:::1"
      # What the authority may sign, so that trust in it opens nothing else.
      CONSTRAINTS = "permitted;DNS:localhost,permitted;IP:127.0.0.0/255.0.0.0," \
                    "permitted;IP:0:0:0:0:0:0:0:1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"

      # @return [String] the user's directory for it
      # @raise [ConfigError] when the user has no home, as one that a container knows by number only
      def self.directory
        state = ENV["XDG_STATE_HOME"].to_s
        File.join(state.start_with?("/") ? state : File.join(Dir.home, ".local/state"), "chaton/tls")
      rescue ArgumentError
        raise ConfigError, "tls :dev keeps its certificate in the home directory, and user #{Process.uid} has none: " \
                           "set XDG_STATE_HOME to a directory"
      end

      # @return [Array(String, String)] the paths of the certificate and of its key
      def self.pair = %w[localhost.pem localhost.key].map { |name| File.join(directory, name) }

      def initialize(log:, directory: self.class.directory)
        @log = log
        @directory = directory
      end

      # Makes what is missing or expires soon.
      #
      # @raise [ConfigError]
      def prepare
        require "fileutils"
        require "openssl"
        FileUtils.mkdir_p(@directory, mode: 0o700)
        # Another server of this user may be doing the same.
        File.open(path("lock"), File::RDWR | File::CREAT, 0o600) do |lock|
          lock.flock(File::LOCK_EX)
          make_authority unless lasting?("authority")
          make("localhost", authority: read("authority")) unless lasting?("localhost")
        end
      rescue LoadError, SystemCallError, OpenSSL::OpenSSLError => e
        raise ConfigError, "the certificate of tls :dev cannot be made: #{e.message}"
      end

      private

      def path(name) = File.join(@directory, name)

      def make_authority
        make("authority")
        # The old one was signed by another.
        FileUtils.rm_f(path("localhost.pem"))
        @log.info("made an authority for development; to have browsers trust its certificates, import the file as a " \
                  "certificate authority (system-wide: copy it to /usr/local/share/ca-certificates/chaton-dev.crt " \
                  "and run update-ca-certificates)", file: path("authority.pem"))
      end

      def lasting?(name)
        certificate, key = read(name)
        certificate.not_after > Time.now + (RENEW_DAYS * DAY_S) && certificate.check_private_key(key)
      rescue Errno::ENOENT, OpenSSL::OpenSSLError
        false
      end

      def read(name)
        [OpenSSL::X509::Certificate.new(File.read(path("#{name}.pem"))),
         OpenSSL::PKey.read(File.read(path("#{name}.key")))]
      end

      def make(name, authority: nil)
        key = OpenSSL::PKey::EC.generate("prime256v1")
        certificate = OpenSSL::X509::Certificate.new
        certificate.version = 2
        certificate.serial = OpenSSL::BN.rand(120)
        certificate.public_key = key
        # Clocks of virtual machines may differ a little.
        certificate.not_before = Time.now - DAY_S
        certificate.not_after = Time.now + ((authority ? DAYS - 1 : AUTHORITY_DAYS) * DAY_S)
        sign(certificate, authority || [certificate, key], self_signed: authority.nil?)
        write("#{name}.key", key.private_to_pem, 0o600)
        write("#{name}.pem", certificate.to_pem, 0o644)
      end

      def sign(certificate, authority, self_signed:)
        name = self_signed ? "Chaton development authority of #{Etc.getlogin || Process.uid}" : "localhost"
        certificate.subject = OpenSSL::X509::Name.new([["CN", name[0, 64]]])
        certificate.issuer = authority.first.subject
        factory = OpenSSL::X509::ExtensionFactory.new(authority.first, certificate)
        (self_signed ? of_authority : of_server).each do |extension, value, critical|
          certificate.add_extension(factory.create_extension(extension, value, critical))
        end
        certificate.sign(authority.last, OpenSSL::Digest.new("SHA256"))
      end

      def of_authority
        [["basicConstraints", "CA:TRUE,pathlen:0", true], ["keyUsage", "keyCertSign,cRLSign", true],
         ["nameConstraints", CONSTRAINTS, true], ["subjectKeyIdentifier", "hash", false]]
      end

      def of_server
        [["basicConstraints", "CA:FALSE", true], ["keyUsage", "digitalSignature", true],
         ["extendedKeyUsage", "serverAuth", false], ["subjectAltName", NAMES, false],
         ["subjectKeyIdentifier", "hash", false], ["authorityKeyIdentifier", "keyid", false]]
      end

      # In one step: a running server reads it when it changes.
      def write(name, text, mode)
        File.open(path("#{name}.new"), File::WRONLY | File::CREAT | File::TRUNC, mode) { |file| file.write(text) }
        File.rename(path("#{name}.new"), path(name))
      end
    end
  end
end
