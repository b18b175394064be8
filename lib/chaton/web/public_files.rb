# frozen_string_literal: true

require_relative "https_only"

module Chaton
  module Web
    # Which files the web engine serves without the application. Types are those of Rack, so that a file has the type
    # that Rack::Static and Rails give it.
    class PublicFiles
      # Rails' own middleware that may precede ActionDispatch::Static: the engine does what it would do for a file.
      BEFORE = %w[ActionDispatch::HostAuthorization ActionDispatch::AssumeSSL ActionDispatch::SSL Rack::Sendfile].freeze

      # @param plan [Config::Plan]
      # @param app [#call] the loaded application
      # @param log [Telemetry::Log]
      def initialize(plan, app, log:)
        @plan = plan
        @app = app
        @log = log
      end

      # @return [Hash{Symbol=>Object}, nil] for the settings of the engine; nil: it serves none
      def settings
        root = @plan.web.static
        return of_rails if root == :auto

        of_plan(File.expand_path(root, @plan.root)) unless root == :off
      end

      private

      def of_plan(root)
        unless File.directory?(root)
          @log.warn("static: there is no directory #{root}; its files are left to the application")
          return
        end
        web = @plan.web
        { **common(root), index: web.static_index, html: false, https_only: web.https_only,
                          https_only_except: plain_paths, headers: own_headers.to_a }
      end

      def plain_paths = Array(@plan.web.https_only_except).flatten

      # @return [Hash{String=>String}] what {HttpsOnly} adds to other answers
      def own_headers = @plan.web.https_only && @plan.web.hsts ? { HttpsOnly::HSTS => @plan.web.hsts } : {}

      # Only if the application would serve them in the same way: middleware of its own might want to see the requests.
      def of_rails
        # Rack 2 and later return the application itself if config.ru uses no middleware.
        return unless defined?(::Rails.application) && ::Rails.application && @app.equal?(::Rails.application)

        @config = ::Rails.application.config
        root = ::Rails.application.paths["public"].first
        before = middleware_before
        return unless serves?(before) && root && File.directory?(root)

        server = @config.public_file_server
        { **common(root.to_s), index: "#{server.index_name || "index"}.html", html: true,
                               https_only: @plan.web.https_only || redirected?(before),
                               https_only_except: redirected?(before) ? [] : plain_paths,
                               headers: headers_of_rails(before) }
      end

      def headers_of_rails(before)
        headers = { **strict_transport(before), **(@config.public_file_server.headers || {}) }
        own = own_headers.reject { |name, _| headers.any? { |given, _| given.to_s.casecmp?(name) } }
        [*own, *headers].map { |pair| pair.map(&:to_s) }
      end

      # Whether Rails redirects what came over plain HTTP.
      def redirected?(before) = before.include?("ActionDispatch::SSL") && !before.include?("ActionDispatch::AssumeSSL")

      def common(root)
        web = @plan.web
        { root: root, cache_control: web.static_cache_control, memory_bytes_max: web.static_memory_bytes_max,
          file_bytes_max: web.static_file_bytes_max, fresh_s: web.static_fresh_s,
          types: ::Rack::Mime::MIME_TYPES.select { |_, type| type.is_a?(String) } }
      end

      # @return [Array<String>, nil] nil without ActionDispatch::Static
      def middleware_before
        names = ::Rails.application.middleware.map { |middleware| middleware.klass.to_s }
        names[0...names.index("ActionDispatch::Static")] if names.include?("ActionDispatch::Static")
      end

      def serves?(before)
        return false unless before && (before - BEFORE).empty? && @config.public_file_server.enabled
        # The hosts are checked by the application.
        return false if before.include?("ActionDispatch::HostAuthorization") && !Array(@config.hosts).empty?

        @config.relative_url_root.nil? && ::ActionController::Base.default_static_extension == ".html"
      end

      # What ActionDispatch::SSL adds to an answer over HTTPS.
      def strict_transport(before)
        return {} unless before.include?("ActionDispatch::SSL")

        options = @config.ssl_options.slice(:hsts)
        ssl = ::ActionDispatch::SSL.new(->(_env) { [200, {}, []] }, **options)
        env = { "HTTPS" => "on", "REQUEST_METHOD" => "GET", "HTTP_HOST" => "localhost", "PATH_INFO" => "/" }
        ssl.call(env)[1].to_h.select { |name, _| name.casecmp?("strict-transport-security") }
      end
    end
  end
end
