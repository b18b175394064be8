# frozen_string_literal: true

require "fileutils"

module Chaton
  module Telemetry
    # Redirects standard output and error into files, and reopens the files after a log rotator has moved them (HUP).
    #
    # The descriptors 1 and 2 themselves are replaced, so that output of Rust and of child processes follows.
    class Redirect
      # @param setting [Array(String, String, Boolean), nil] a plan's stdout_redirect
      def self.of(setting)
        out, err, append = setting
        new(out, err, append: append || false)
      end

      # @param out [String, nil] path for standard output
      # @param err [String, nil] path for standard error
      # @param append [Boolean] false: the first opening empties the file
      def initialize(out, err, append: true)
        @paths = { $stdout => out, $stderr => err }.compact
        @append = append
      end

      # @return [Boolean] whether anything is redirected
      def any?
        !@paths.empty?
      end

      # @return [IO, nil] standard error as it was, until {#forget_original}: who starts the server looks there
      attr_reader :original

      # Opens the files for the first time.
      #
      # @raise [SystemCallError] when a file cannot be opened
      def open
        @original = $stderr.dup if any?
        switch(@append ? "a" : "w")
        # Only the first opening may empty the file.
        @append = true
      end

      # Closes the original, so that nobody waits for its end.
      def forget_original
        @original&.close
        @original = nil
      end

      # Opens the files again under the same names.
      #
      # @raise [SystemCallError]
      def reopen
        switch("a")
      end

      private

      def switch(mode)
        @paths.each do |io, path|
          FileUtils.mkdir_p(File.dirname(path))
          # Truncating once and then writing with O_APPEND keeps the lines of several processes apart.
          File.open(path, "w").close if mode == "w"
          io.reopen(path, "a")
          io.sync = true
        end
      end
    end
  end
end
