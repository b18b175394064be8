# frozen_string_literal: true

module Chaton
  class Workload
    # Shows why an application did not load: its own error, and the line of its own code that led to it.
    module LoadFailure
      # Frames of Chaton, which say nothing about the application.
      OWN = %r{\A(?:#{Regexp.escape(File.expand_path("../..", __dir__))}/|.*/exe/chaton:|.*/bin/chaton:)}

      # @param message [String] what failed because of it
      def self.log(log, error, message, **fields)
        cause = error.cause
        return log.error("#{message}: #{error.message}", **fields) unless cause

        cause.set_backtrace(frames(cause))
        log.exception(cause, "#{message}: the application did not load", **fields, **{ at: place(error) }.compact)
      end

      # @return [String, nil] the innermost frame in the application's directory, "config/routes.rb:7"
      def self.place(error, root: Dir.pwd)
        gems = [*Gem.path, File.join(root, "vendor")].map { |path| "#{path}/" }
        frame = frames(error.cause).find { |one| one.start_with?("#{root}/") && !one.start_with?(*gems) }
        frame && frame.delete_prefix("#{root}/")[/\A[^:]+:\d+/]
      end

      def self.frames(error) = Array(error&.backtrace).grep_v(OWN)
      private_class_method :frames
    end
  end
end
