# frozen_string_literal: true

require "stringio"
require "chaton/version"
require "chaton/web/null_input"

module Chaton
  module Web
    # The Rack env of a listener. Each request gets a copy, in which the extension sets the rest.
    module EnvTemplate
      # Keys that the extension sets, present here so that the copied Hash need not grow.
      SET_PER_REQUEST = %w[
        REQUEST_METHOD SCRIPT_NAME PATH_INFO QUERY_STRING REQUEST_PATH REQUEST_URI SERVER_PROTOCOL
        REMOTE_ADDR rack.hijack rack.after_reply rack.response_finished
      ].freeze
      # The first Rack whose HTTP_VERSION is a header of the client. Before, it is the protocol.
      HEADER_VERSION = Gem::Version.new("3.1")
      private_constant :HEADER_VERSION

      # @param port [Integer] the port that clients connect to
      # @return [Hash{String => Object}] frozen
      def self.build(plan, bind, port)
        places = [*SET_PER_REQUEST, *("HTTP_VERSION" if legacy_version?)].to_h { |key| [key, nil] }
        places.merge(
          "rack.version" => [1, 6].freeze,
          "rack.errors" => $stderr,
          "rack.multithread" => plan.threads_max > 1,
          "rack.multiprocess" => plan.workers.positive?,
          "rack.run_once" => false,
          "rack.url_scheme" => bind.tls ? "https" : "http",
          "rack.hijack?" => true,
          "rack.input" => NullInput.new,
          # Milliseconds, as Puma has them: instruments take them from the time in the queue.
          "puma.request_body_wait" => 0,
          "SERVER_SOFTWARE" => "chaton/#{VERSION}",
          "GATEWAY_INTERFACE" => "CGI/1.2",
          "SERVER_NAME" => bind.scheme == "unix" ? "localhost" : bind.host.to_s,
          "SERVER_PORT" => port.to_s,
          **(bind.tls ? of_tls(bind.tls) : {})
        ).freeze
      end

      # As mod_ssl and nginx name them. The extension has the certificate of a client that sent one.
      def self.of_tls(tls) = { "HTTPS" => "on", **(tls.asks_clients? ? { "SSL_CLIENT_VERIFY" => "NONE" } : {}) }

      def self.legacy_version?
        !defined?(::Rack.release) || Gem::Version.new(::Rack.release) < HEADER_VERSION
      end
      private_class_method :legacy_version?, :of_tls
    end
  end
end
