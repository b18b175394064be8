# frozen_string_literal: true

require_relative "../rails/public_files"
require_relative "https_only"

module Chaton
  module Web
    # Which files the web engine serves without the application. Types are those of Rack, so that a file has the type
    # that Rack::Static and Rails give it.
    class PublicFiles
      # @param app [#call] the loaded application
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

      # @return [Hash{String=>String}] what {HttpsOnly} adds to other responses
      def own_headers = @plan.web.https_only && @plan.web.hsts ? { HttpsOnly::HSTS => @plan.web.hsts } : {}

      def of_rails
        files = RailsPublicFiles.of(@app) or return

        redirected = files.redirected?
        { **common(files.root), index: files.index, html: true, https_only: @plan.web.https_only || redirected,
                                https_only_except: redirected ? [] : plain_paths, headers: with_own(files.headers) }
      end

      def with_own(headers)
        own = own_headers.reject { |name, _| headers.any? { |given, _| given.to_s.casecmp?(name) } }
        [*own, *headers].map { |pair| pair.map(&:to_s) }
      end

      def common(root)
        web = @plan.web
        { root: root, cache_control: web.static_cache_control, memory_bytes_max: web.static_memory_bytes_max,
          file_bytes_max: web.static_file_bytes_max, fresh_s: web.static_fresh_s,
          types: ::Rack::Mime::MIME_TYPES.select { |_, type| type.is_a?(String) } }
      end
    end
  end
end
