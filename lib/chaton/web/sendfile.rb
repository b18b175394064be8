# frozen_string_literal: true

# Also for Rack 2, whose Lint uses it without loading it.
require "uri"

module Chaton
  module Web
    # Sends the file that the application names in `X-Sendfile` (an absolute path) or `X-Accel-Redirect` (a path below
    # one of the directories, escaped as in a URL), as Apache and nginx do. Only files below the directories of
    # `sendfile_roots` are sent; with another one the response is 404.
    class Sendfile
      # The open file as a body; the kernel sends it.
      FileBody = Struct.new(:to_path, :file, :original) do
        def fileno = file.fileno

        def each = (yield file.read(65_536) until file.eof?)

        # Closes the file, and the body that the application gave.
        def close
          file.close
          original.close if original.respond_to?(:close)
        end
      end

      HEADERS = %w[x-sendfile x-accel-redirect].freeze
      DROPPED = [*HEADERS, "content-length"].freeze

      # @param roots [Array<String>] absolute paths
      def initialize(app, roots, log:)
        @app = app
        @roots = roots.map { |root| File.realpath(root) }
        @log = log
      rescue SystemCallError => e
        raise ConfigError, "sendfile_roots: #{e.message}"
      end

      # @return [Array] as Rack defines
      def call(env)
        status, headers, body = answer = @app.call(env)
        name = headers.each_key.find { |key| HEADERS.include?(key.downcase) } or return answer
        headers = headers.reject { |key, _| DROPPED.include?(key.downcase) }
        file = found(name.downcase, answer[1][name]) or return missing(body, name, answer[1][name])

        [status, headers, FileBody.new(*file, body)]
      end

      private

      # @return [Array(String, File), nil] nil if it is not below a root, or no file
      def found(name, value)
        return open_below(value) if name == "x-sendfile"

        path = URI.decode_www_form_component(value[/\A[^?]*/].gsub("+", "%2B"))
        @roots.each { |root| file = open_below(File.join(root, path)) and return file }
        nil
      rescue ArgumentError
        nil
      end

      # Only once: a path may name another file later.
      def open_below(path)
        descriptor = Native::Web.open_below(@roots, path) and [path, File.for_fd(descriptor, "rb")]
      end

      def missing(body, name, value)
        body.close if body.respond_to?(:close)
        @log.warn("#{name}: there is no such file below sendfile_roots", path: value)
        [404, { "content-type" => "text/plain" }, ["Not Found\n"]]
      end
    end
  end
end
