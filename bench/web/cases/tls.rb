# frozen_string_literal: true

require_relative "../../peers/nginx"

module Bench
  module Web
    # HTTPS, and nginx with one worker for what it does, too. Cases with nginx are not measured where it is missing.
    module Cases
      module_function

      def tls = [tls_hello, tls_connect, tls_connect_nginx, *files_nginx]

      def tls_hello
        row("tls", "hello over TLS, keep-alive, c=100, 5 threads; the second Chaton is plain HTTP",
            [Bar.at_least(:rps, 4.0), Bar.at_least(:rps, 0.75, against: :pairs)],
            servers: [Chaton.new(threads: "5:5", tls: true), Chaton.new(threads: "5:5"), *tls_pumas])
      end

      def tls_connect
        row("tls-connect", "one request per TLS connection (ECDSA P-256, no resumption), c=100, 5 threads",
            [Bar.at_least(:rps, 1.0)], mode: "close",
                                       servers: [Chaton.new(threads: "5:5", tls: true), *tls_pumas])
      end

      def tls_connect_nginx
        row("tls-connect-nginx", "one request per TLS connection (ECDSA P-256, no resumption), c=100, against nginx",
            [Bar.at_least(:rps, 0.9)], mode: "close",
                                       servers: [Chaton.new(threads: "5:5", tls: true), Nginx.new(tls: true)])
      end

      def files_nginx
        FILES.map do |name, size|
          edge_row("static-#{name}-nginx", "file of #{size}, c=100, against nginx with one worker",
                   [Bar.at_least(:rps, 0.8)], path: "/files/#{name}.css",
                                              servers: [Chaton.new(config: EDGE_CONFIG), Nginx.new(root: EDGE_ROOT)])
        end
      end

      def tls_pumas = [Puma.new(threads: "5:5", tls: true), Puma.new(threads: "5:5", tls: true, core: PINNED_CORE)]
    end
  end
end
