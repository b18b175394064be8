# frozen_string_literal: true

require "rack"

module Chaton
  module Web
    # Redirects requests that came over plain HTTP (`https_only`), and tells browsers to use HTTPS from the start
    # (`hsts`). Rack decides whether a request came over HTTPS, from the connection and the headers of a proxy in front.
    class HttpsOnly
      # The port of HTTPS that URLs do not name.
      PORT = 443
      HSTS = "strict-transport-security"
      # A name or an address, and a port.
      HOST = %r{\A(\[[\h:.]+\]|[^\s/?#@:\[\]\\]+)(:\d*)?\z}

      # @param port [Integer] of HTTPS
      # @param except [Array<String>] paths that are answered over plain HTTP; a `*` at the end stands for any rest
      # @param hsts [String, nil] the value of Strict-Transport-Security
      # @param proxied [Boolean] whether X-Forwarded-Host comes from proxies that are trusted: a redirect goes there.
      #   From anybody else it would lead to any address, also for others if a cache keeps it
      def initialize(app, port: PORT, except: [], hsts: nil, proxied: false)
        @app = app
        @port = port
        prefixes, @paths = except.partition { |path| path.end_with?("*") }
        @prefixes = prefixes.map { |path| path.delete_suffix("*") }
        @hsts = hsts
        @proxied = proxied
      end

      # @return [Array] as Rack defines
      def call(env)
        request = ::Rack::Request.new(env)
        return @app.call(env) if !request.ssl? && excepted?(env["PATH_INFO"])
        return redirect(request) unless request.ssl?

        status, headers, body = answer = @app.call(env)
        return answer if @hsts.nil? || headers.any? { |name, _| name.casecmp?(HSTS) }

        [status, headers.to_h.merge(HSTS => @hsts), body]
      end

      private

      def excepted?(path) = @paths.include?(path) || path.start_with?(*@prefixes)

      # The method stays the same in a 308; old clients know only 301.
      def redirect(request)
        port = ":#{@port}" unless @port == PORT
        status = request.get? || request.head? ? 301 : 308
        # OPTIONS may have `*` for a path.
        path = request.fullpath.sub(%r{\A(?!/)[^?]*}, "/")
        [status, { "location" => "https://#{host(request.env)}#{port}#{path}", "content-type" => "text/plain" }, []]
      end

      # @return [String] without a port
      def host(env)
        proxied = env["HTTP_X_FORWARDED_HOST"].to_s.split(",").last.to_s.strip if @proxied
        given = [proxied, env["HTTP_HOST"]].find { |host| host&.match?(HOST) }
        return given.sub(/:\d*\z/, "") if given

        name = env["SERVER_NAME"]
        name.include?(":") ? "[#{name}]" : name
      end
    end
  end
end
