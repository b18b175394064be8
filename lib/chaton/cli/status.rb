# frozen_string_literal: true

require "json"
require_relative "jobs_status"
require_relative "paint"
require_relative "server_command"
require_relative "status_report"
require_relative "streams_status"

module Chaton
  class CLI
    # chaton status: prints what a running server is doing.
    class Status < ServerCommand
      def self.switches = ["--json"]

      def run
        answer = JobsStatus.add(ask("status").except("ok"), @arguments.given)
        answer = StreamsStatus.add(answer, @arguments.given)
        json = @arguments.switch?("--json")
        @out.puts json ? JSON.pretty_generate(answer) : StatusReport.new(answer, paint: Paint.for(@out))
        0
      end
    end
  end
end
