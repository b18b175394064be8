# frozen_string_literal: true

module Bench
  module Web
    # HTTP/2, with Puma's HTTP/1.1 and Chaton's own for the same requests under way.
    module Cases
      module_function

      def http2 = [false, true].map { |tls| http2_row(tls) }

      def http2_row(tls)
        name = tls ? "over TLS" : "without TLS (h2c)"
        title = "hello by HTTP/2 #{name}, 10 connections × 10 streams, 5 threads; the second Chaton and Puma: " \
                "HTTP/1.1, c=100"
        row(tls ? "http2-tls" : "http2", title,
            [Bar.at_least(:rps, 4.0), Bar.at_most(:cpu_us, 1.25, against: :pairs)],
            servers: [Chaton.new(threads: "5:5", tls:, http2: true), Chaton.new(threads: "5:5", tls:),
                      *(tls ? tls_pumas : pumas("5:5"))])
      end
    end
  end
end
