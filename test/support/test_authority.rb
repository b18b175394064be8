# frozen_string_literal: true

require "openssl"

# An authority that signs a certificate for 127.0.0.1.
class TestAuthority
  DAY_S = 86_400

  # @return [String] its certificate, PEM
  attr_reader :pem
  # @return [OpenSSL::SSL::SSLContext] of a server
  attr_reader :server

  def initialize
    key, own = Array.new(2) { OpenSSL::PKey::EC.generate("prime256v1") }
    authority = certificate("authority", key, "basicConstraints" => "critical,CA:TRUE", "keyUsage" => "keyCertSign")
    authority.issuer = authority.subject
    @pem = authority.sign(key, "SHA256").to_pem
    leaf = certificate("server", own, "subjectAltName" => "IP:127.0.0.1", "extendedKeyUsage" => "serverAuth")
    leaf.issuer = authority.subject
    @server = OpenSSL::SSL::SSLContext.new
    @server.add_certificate(leaf.sign(key, "SHA256"), own)
  end

  private

  def certificate(name, key, extensions)
    made = OpenSSL::X509::Certificate.new
    made.version = 2
    made.serial = rand(1..1_000_000)
    made.subject = OpenSSL::X509::Name.new([["CN", name]])
    made.public_key = key
    made.not_before = Time.now - DAY_S
    made.not_after = Time.now + DAY_S
    factory = OpenSSL::X509::ExtensionFactory.new
    extensions.each { |id, value| made.add_extension(factory.create_ext_from_string("#{id}=#{value}")) }
    made
  end
end
