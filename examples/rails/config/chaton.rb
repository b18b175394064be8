# frozen_string_literal: true

# Production with nothing in front: HTTPS with the certificate that TLS_CERT and TLS_KEY name, plain HTTP that redirects
# to it, the files of public/ (Rails' settings say so by themselves), and compressed pages. Without a certificate, as in
# development or behind a proxy that has it, this is plain HTTP on the usual port.
if (certificate = ENV["TLS_CERT"])
  bind "https://0.0.0.0:#{ENV.fetch("HTTPS_PORT", "443")}", cert: certificate, key: ENV.fetch("TLS_KEY")
  bind "tcp://0.0.0.0:#{ENV.fetch("HTTP_PORT", "80")}"

  web do
    https_only true
    https_only_except "/up"
    hsts "max-age=31536000"
  end
end

web { compress true }
