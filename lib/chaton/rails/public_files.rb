# frozen_string_literal: true

module Chaton
  # The files of public/ that the web engine serves for a Rails application: only those that the application would serve
  # in the same way, since middleware of its own might want to see the requests.
  class RailsPublicFiles
    # Rails' own middleware that may precede ActionDispatch::Static: the engine does what it would do for a file.
    BEFORE = %w[ActionDispatch::HostAuthorization ActionDispatch::AssumeSSL ActionDispatch::SSL Rack::Sendfile].freeze
    private_class_method :new

    # @param app [#call] the loaded application
    # @return [RailsPublicFiles, nil] nil: the application is not Rails itself, or its files are left to it
    def self.of(app)
      # Rack 2 and later return the application itself if config.ru uses no middleware.
      return unless defined?(::Rails.application) && ::Rails.application && app.equal?(::Rails.application)

      files = new(::Rails.application)
      files if files.served?
    end

    def initialize(application)
      @config = application.config
      @directory = application.paths["public"].first
      names = application.middleware.map { |middleware| middleware.klass.to_s }
      @before = names[0...names.index("ActionDispatch::Static")] if names.include?("ActionDispatch::Static")
    end

    def root = @directory.to_s

    # @return [String] the file for a directory
    def index = "#{@config.public_file_server.index_name || "index"}.html"

    def served?
      return false unless @before && (@before - BEFORE).empty? && @config.public_file_server.enabled
      # The hosts are checked by the application.
      return false if @before.include?("ActionDispatch::HostAuthorization") && !Array(@config.hosts).empty?
      return false unless @directory && File.directory?(@directory)

      @config.relative_url_root.nil? && ::ActionController::Base.default_static_extension == ".html"
    end

    # @return [Boolean] whether Rails redirects what came over plain HTTP
    def redirected? = @before.include?("ActionDispatch::SSL") && !@before.include?("ActionDispatch::AssumeSSL")

    # @return [Hash{Object=>Object}] what the application adds to each file
    def headers = { **strict_transport, **(@config.public_file_server.headers || {}) }

    private

    # What ActionDispatch::SSL adds to a response over HTTPS.
    def strict_transport
      return {} unless @before.include?("ActionDispatch::SSL")

      options = @config.ssl_options.slice(:hsts)
      ssl = ::ActionDispatch::SSL.new(->(_env) { [200, {}, []] }, **options)
      env = { "HTTPS" => "on", "REQUEST_METHOD" => "GET", "HTTP_HOST" => "localhost", "PATH_INFO" => "/" }
      ssl.call(env)[1].to_h.select { |name, _| name.casecmp?("strict-transport-security") }
    end
  end
end
