# frozen_string_literal: true

require "fileutils"
require "openssl"

# An authority and the certificates that it signs, as files in a directory.
class TlsFiles
  DAY_S = 86_400

  # @param dir [String]
  def initialize(dir)
    @dir = dir
    @serial = 0
    FileUtils.mkdir_p(dir)
    @key = OpenSSL::PKey::EC.generate("prime256v1")
    @authority = sign("/CN=Test authority", @key, authority: true)
    File.write(path("ca.pem"), @authority.to_pem)
  end

  # @return [String] the path of a file of the directory
  def path(name) = File.join(@dir, name)

  # Writes NAME.pem and NAME.key.
  #
  # @param names [Array<String>] DNS names
  # @param days [Numeric] until it expires
  # @yield [path] of the key, before it gets its name
  # @return [OpenSSL::X509::Certificate]
  def write(name, names: ["localhost"], days: 30, subject: "/CN=#{names.first}", use: "serverAuth",
            key: OpenSSL::PKey::EC.generate("prime256v1"))
    certificate = sign(subject, key, names: names, days: days, use: use)
    put("#{name}.key", key.private_to_pem, 0o600) { |path| yield path if block_given? }
    put("#{name}.pem", certificate.to_pem, 0o644)
    certificate
  end

  # @return [Hash{Symbol=>String}] paths, as a bind takes them
  def pair(name) = { cert: path("#{name}.pem"), key: path("#{name}.key") }

  # @return [OpenSSL::SSL::SSLContext] of a client that trusts the authority
  def context(client: nil)
    OpenSSL::SSL::SSLContext.new.tap do |context|
      context.ca_file = path("ca.pem")
      context.verify_mode = OpenSSL::SSL::VERIFY_PEER
      next unless client

      context.cert = OpenSSL::X509::Certificate.new(File.read(path("#{client}.pem")))
      context.key = OpenSSL::PKey.read(File.read(path("#{client}.key")))
    end
  end

  private

  # In one step, as tools that renew certificates do.
  def put(name, text, mode)
    File.write(path("#{name}.new"), text, perm: mode)
    yield path("#{name}.new") if block_given?
    File.rename(path("#{name}.new"), path(name))
  end

  def sign(subject, key, names: [], days: 30, use: nil, authority: false)
    certificate = OpenSSL::X509::Certificate.new
    certificate.version = 2
    certificate.serial = @serial += 1
    certificate.subject = OpenSSL::X509::Name.parse(subject)
    certificate.issuer = @authority ? @authority.subject : certificate.subject
    certificate.public_key = key
    certificate.not_before = Time.now - (2 * DAY_S)
    certificate.not_after = Time.now + (days * DAY_S)
    extend(certificate, names, use, authority)
    certificate.sign(@key, OpenSSL::Digest.new("SHA256"))
  end

  def extend(certificate, names, use, authority)
    factory = OpenSSL::X509::ExtensionFactory.new(@authority || certificate, certificate)
    certificate.add_extension(factory.create_extension("basicConstraints", "CA:#{authority.to_s.upcase}", true))
    certificate.add_extension(factory.create_extension("extendedKeyUsage", use)) if use
    alternatives = names.map { |name| "DNS:#{name}" }.join(",")
    certificate.add_extension(factory.create_extension("subjectAltName", alternatives)) unless names.empty?
  end
end
