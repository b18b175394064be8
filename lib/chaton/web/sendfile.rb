# frozen_string_literal: true

require "uri"

module Chaton
  module Web
    # Sends the file that the application names in `X-Sendfile` (an absolute path) or `X-Accel-Redirect` (a path below
    # one of the directories, escaped as in a URL), as Apache and nginx do. Only files below the directories of
    # `sendfile_roots` are sent; with another one the answer is 404.
    class Sendfile
      # The file as a body; the kernel sends it.
      FileBody = Struct.new(:to_path, :original) do
        # @return [nil]
        def each = File.open(to_path, "rb") { |file| yield file.read(65_536) until file.eof? }

        # Closes the body that the application gave.
        def close = (original.close if original.respond_to?(:close))
      end

      HEADERS = %w[x-sendfile x-accel-redirect].freeze
      DROPPED = [*HEADERS, "content-length"].freeze

      # @param app [#call]
      # @param roots [Array<String>] absolute paths
      # @param log [Telemetry::Log]
      def initialize(app, roots, log:)
        @app = app
        @roots = roots.map { |root| File.join(File.realpath(root), "") }
        @log = log
      rescue SystemCallError => e
        raise ConfigError, "sendfile_roots: #{e.message}"
      end

      # @param env [Hash]
      # @return [Array] as Rack defines
      def call(env)
        status, headers, body = answer = @app.call(env)
        name = headers.each_key.find { |key| HEADERS.include?(key.downcase) } or return answer
        headers = headers.reject { |key, _| DROPPED.include?(key.downcase) }
        path = found(name.downcase, answer[1][name]) or return missing(body, name, answer[1][name])

        [status, headers, FileBody.new(path, body)]
      end

      private

      def found(name, value)
        return below(value) if name == "x-sendfile"

        path = URI.decode_www_form_component(value[/\A[^?]*/].gsub("+", "%2B"))
        @roots.filter_map { |root| below(File.join(root, path)) }.first
      rescue ArgumentError
        nil
      end

      # @return [String, nil] nil if it is not below a root, or no file
      def below(path)
        real = File.realpath(path)
        real if File.file?(real) && @roots.any? { |root| real.start_with?(root) }
      rescue SystemCallError, ArgumentError
        nil
      end

      def missing(body, name, value)
        body.close if body.respond_to?(:close)
        @log.warn("#{name}: there is no such file below sendfile_roots", path: value)
        [404, { "content-type" => "text/plain" }, ["Not Found\n"]]
      end
    end
  end
end
