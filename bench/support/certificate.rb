# frozen_string_literal: true

require "fileutils"
require "openssl"

module Bench
  # The certificate of all servers that speak TLS: ECDSA on P-256, signed by itself, below tmp/bench.
  module Certificate
    FOLDER = File.expand_path("../../tmp/bench/tls", __dir__)
    DAY_S = 86_400

    module_function

    # @return [Array(String, String)] the paths of the certificate and of its key, made anew by each run
    def pair
      @pair ||= %w[cert.pem key.pem].map { |name| File.join(FOLDER, name) }.tap { |paths| make(*paths) }
    end

    def make(cert, key)
      FileUtils.mkdir_p(FOLDER)
      secret = OpenSSL::PKey::EC.generate("prime256v1")
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = 1
      certificate.subject = certificate.issuer = OpenSSL::X509::Name.new([%w[CN localhost]])
      certificate.public_key = secret
      certificate.not_before = Time.now - DAY_S
      certificate.not_after = Time.now + (30 * DAY_S)
      certificate.sign(secret, "SHA256")
      File.write(cert, certificate.to_pem)
      File.write(key, secret.private_to_pem, perm: 0o600)
    end
  end
end
