# frozen_string_literal: true

require "socket"
require_relative "bind_tls"
require_relative "nearest"
require_relative "types"
require_relative "types/text"

module Chaton
  module Config
    # An address to listen on.
    #
    # scheme is "tcp", "https" or "unix"; host and port belong to the first two, tls to the second, path, umask and mode
    # to the third; backlog is nil if the listener's own default applies; proxy_protocol tells whether a balancer in
    # front sends the address of the client first: true, false or the networks of those that may.
    Bind = Struct.new(:scheme, :host, :port, :path, :backlog, :umask, :mode, :tls, :proxy_protocol,
                      keyword_init: true) do
      # @return [String] "tcp://127.0.0.1:9292", "unix:///run/app.sock"; two binds with the same text are the same
      def to_s
        return "unix://#{path}" if scheme == "unix"

        "#{scheme}://#{host.include?(":") ? "[#{host}]" : host}:#{port}"
      end

      # The name localhost stands for both loopback addresses, where the machine has them, as in Puma. It is not asked
      # of a resolver, which may know one of them or none.
      def addresses
        return [self] unless host == "localhost"

        ["127.0.0.1", *("::1" if Socket.ip_address_list.any?(&:ipv6_loopback?))]
          .map { |address| dup.tap { |bind| bind.host = address }.freeze }
      end

      # @return [Bind] with HTTPS, if it is a TCP bind
      def encrypted_for_development
        scheme == "tcp" ? dup.tap { |bind| bind.scheme, bind.tls = "https", BindTls.for_development }.freeze : self
      end

      # @param root [String] the directory a relative path starts from
      def under(root)
        dup.tap { |bind|
          bind.path &&= File.expand_path(path, root)
          bind.tls &&= tls.under(root)
        }.freeze
      end
    end

    module Types
      # `bind "tcp://0.0.0.0:9292"`, `bind "unix://tmp/app.sock?umask=0117"`,
      # `bind "https://0.0.0.0:443", cert: "app.pem", key: "app.key"`.
      class BindAddress < Base
        # Used if a bind of the server names no port.
        PORT = 9292
        # Parameters after the question mark.
        PARAMETERS = { "tcp" => %w[backlog low_latency proxy_protocol],
                       "unix" => %w[backlog umask mode proxy_protocol] }.freeze
        # Who may send a header of the PROXY protocol, besides true (anybody) and false.
        SOURCES = Networks.new("true or false, or addresses and networks such as 10.0.0.0/8 or private, with commas")
        NO_TLS = "cannot be encrypted: bind tcp:// or unix:// here"

        # @param port [Integer] used if no port is named
        # @param tls [Boolean] whether connections may be encrypted
        def initialize(port: PORT, tls: true)
          @port = port
          @tls = tls
          super("a URI such as tcp://127.0.0.1:#{port} or unix:///run/app.sock")
        end

        def list? = true

        def arguments = @tls ? 1..2 : 1..1

        # @param tls [Hash{Symbol=>Object}] parameters of TLS, which may also stand in the URI
        def cast(value, tls = {})
          scheme, rest = value.to_s.split("://", 2)
          return https(value, rest, tls) if %w[ssl https].include?(scheme)
          unless tls == {}
            raise Mismatch, "takes parameters apart from the URI with https:// only; of #{value} they follow a " \
                            "question mark, as in tcp://0.0.0.0:80?proxy_protocol=on"
          end

          case scheme
          when "tcp", "http" then tcp(value, *host_and_port(value, rest))
          when "unix" then unix(value, rest)
          else bare(value)
          end
        end

        private

        def https(value, rest, tls)
          raise Mismatch, NO_TLS unless @tls
          raise Mismatch, "takes a URI and parameters such as cert:, not #{tls.inspect}" unless tls.is_a?(Hash)

          host, port, query = host_and_port(value, rest)
          given = [*decode(query), *tls.transform_keys(&:to_s)]
          own, tls = given.partition { |name, _| PARAMETERS.fetch("tcp").include?(name) }
          require "uri"
          tcp(value, host, port, URI.encode_www_form(own.map { |name, some| [name, Array(some).join(",")] }))
            .dup.tap { |bind| bind.scheme, bind.tls = "https", TlsParameters.new.cast(tls) }.freeze
        end

        def host_and_port(value, rest)
          host, port, query = rest.match(%r{\A(\[[\w:.%]+\]|[^:/?\[\]]*)(?::(\d+))?/?(?:\?(.*))?\z})&.captures
          mismatch(value) unless host
          [host, port, query]
        end

        def tcp(value, host, port, query)
          number = port ? port.to_i : @port
          raise Mismatch, "must have a port from 0 to 65,535, not #{value.inspect}" unless number.between?(0, 65_535)

          parameters = parameters("tcp", query)
          Bind.new(scheme: "tcp", host: host.empty? ? "0.0.0.0" : host.delete("[]"), port: number,
                   backlog: backlog(parameters), proxy_protocol: proxied(parameters)).freeze
        end

        def unix(value, rest)
          path, query = rest.split("?", 2)
          raise Mismatch, "must name a file; abstract sockets (@) are not supported" if path&.match?(/\A(@|\\0)/)
          mismatch(value) if path.nil? || path.empty?
          # The limit is sun_path of sockaddr_un, including its final NUL.
          raise Mismatch, "must have a path below 108 bytes, not #{path.bytesize}" if path.bytesize > 107

          parameters = parameters("unix", query)
          Bind.new(scheme: "unix", path: path, backlog: backlog(parameters), umask: octal("umask", parameters),
                   mode: octal("mode", parameters), proxy_protocol: proxied(parameters)).freeze
        end

        def bare(value)
          raise Mismatch, "must be #{rule}: write tcp://#{value}" if value.to_s.match?(/\A[\w.\[\]:-]*:?\d+\z/)
          raise Mismatch, "must be #{rule}: write unix://#{value}" if value.to_s.match?(%r{\A[./~]})

          mismatch(value)
        end

        def parameters(scheme, query)
          found = decode(query).to_h
          unknown = found.keys - PARAMETERS.fetch(scheme)
          return found if unknown.empty?

          nearest = Nearest.to(unknown.first, PARAMETERS.fetch(scheme))
          raise Mismatch, "has an unknown parameter #{unknown.first.inspect}" \
                          "#{"; did you mean #{nearest}?" if nearest}"
        end

        def decode(query)
          return [] unless query

          # Needed here only, and slow to load for a short command.
          require "uri"
          URI.decode_www_form(query)
        rescue ArgumentError
          raise Mismatch, "has parameters that cannot be read: #{query.inspect}"
        end

        def backlog(parameters)
          return unless (text = parameters["backlog"])

          Number.new(1..65_535).cast(text)
        rescue Mismatch => e
          raise Mismatch, "has a backlog that #{e.message}"
        end

        def proxied(parameters)
          given = parameters.fetch("proxy_protocol", "off")
          raise Mismatch, "has no proxy_protocol: bind it where the balancer connects" if given != "off" && !@tls
          return Switch.new.cast(given) if Switch::WORDS.key?(given.downcase)

          SOURCES.cast(*given.split(",", -1).then { |some| some.empty? ? "" : some }).freeze
        rescue Mismatch => e
          raise Mismatch, "has a proxy_protocol that #{e.message}"
        end

        def octal(name, parameters)
          return unless (text = parameters[name])
          raise Mismatch, "has a #{name} that must be octal, such as 0117, not #{text.inspect}" \
            unless text.match?(/\A[0-7]{1,4}\z/)

          text.to_i(8)
        end
      end

      # `port 3000`, `port 3000, "127.0.0.1"`.
      class Port < Base
        # All interfaces, as in Puma.
        ANY = "0.0.0.0"

        def initialize = super("a number from 0 to 65535")

        def arguments = 1..2

        def list? = true

        def cast(port, host = nil)
          number = Integer(port.to_s, 10, exception: false)
          mismatch(port) unless number&.between?(0, 65_535)

          Bind.new(scheme: "tcp", host: (host || ANY).delete("[]"), port: number).freeze
        end
      end
    end
  end
end
