# frozen_string_literal: true

require "fileutils"
require_relative "server_command"

module Chaton
  class CLI
    # chaton dashboard: prints a link that opens the page of a running server, once, and opens it where there is a
    # browser.
    class Dashboard < ServerCommand
      # Any of them is set where programs can open windows.
      DISPLAYS = %w[DISPLAY WAYLAND_DISPLAY].freeze
      OPENER = "xdg-open"

      def self.switches = ["--no-open"]

      def run
        answer = ask("dashboard")
        @out.puts answer["url"]
        @err.puts note(answer)
        show(answer["url"]) if @out.tty? && !answer["socket"] && !@arguments.switch?("--no-open")
        0
      end

      private

      def note(answer)
        valid = "The link is valid for #{answer["valid_s"].round} s, and once."
        return valid unless answer["socket"]

        "#{valid} The admin endpoint listens on a Unix socket only; forward a port to it, for example with `ssh -L " \
          "9394:#{answer["socket"].delete_prefix("unix://")} HOST`, and open the link with that port."
      end

      # The key must not be in the arguments of a process, which others can see; so the browser gets a file.
      def show(url)
        return unless ENV.values_at(*DISPLAYS).any?

        path = "#{control_socket}.html"
        FileUtils.rm_f(path)
        File.write(path, %(<!doctype html><meta http-equiv="refresh" content="0; url=#{url}">\n), perm: 0o600)
        Process.detach(Process.spawn(OPENER, path, in: :close, out: File::NULL, err: File::NULL, pgroup: true))
      rescue SystemCallError
        # There is no such program; the link is printed.
        nil
      end
    end
  end
end
