# frozen_string_literal: true

require "chaton/errors"

module Chaton
  # The Ruby part of the web engine: runs requests and sends their responses.
  module Web
    # Loads the Rack application that the plan names.
    module App
      # @return [#call] the application with its middleware
      # @raise [AppLoadError] naming the file, with what was raised as its cause
      def self.load(plan)
        path = plan.rackup
        raise AppLoadError, "no rackup file: looked for #{path}. Give it as `chaton config.ru`" unless File.file?(path)

        require "rack"
        # Rack 2 returns [app, options], Rack 3 the app. Rack 2 would load its server for the options of a comment.
        app, = Rack.release < "3" ? Rack::Builder.parse_file(path, nil) : Rack::Builder.parse_file(path)
        app
      rescue AppLoadError, SystemExit, SignalException
        raise
      rescue Exception => e # rubocop:disable Lint/RescueException -- a syntax error is no StandardError
        raise AppLoadError, "the application in #{path} did not load: #{e.message} (#{e.class})"
      end
    end
  end
end
