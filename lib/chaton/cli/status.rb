# frozen_string_literal: true

require "io/console"
require "json"
require_relative "stores_status"
require_relative "paint"
require_relative "server_command"
require_relative "status_report"

module Chaton
  class CLI
    # chaton status: prints what a running server is doing.
    class Status < ServerCommand
      def self.switches = ["--json"]

      def run
        if @arguments.switch?("--json")
          @out.puts JSON.pretty_generate(status(control_socket))
        else
          @out.puts control_sockets.map { |path| report(status(path)) }.join("\n\n")
        end
        0
      end

      private

      def report(status)
        columns = @out.winsize.last if Paint.terminal?(@out)
        StatusReport.new(status, paint: Paint.for(@out), columns: (columns if columns&.positive?))
      end

      def status(path)
        StoresStatus.add(ask("status", path).except("ok"), @arguments.given)
      end
    end
  end
end
