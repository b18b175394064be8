# frozen_string_literal: true

require "json"
require_relative "../../telemetry/size"
require_relative "../table"
require_relative "command"

module Chaton
  class CLI
    module Profile
      # chaton profile status
      class Status < Command
        # Column => field.
        COLUMNS = {
          "worker" => "worker", "pid" => "pid", "profiles" => "running", "seconds" => "seconds", "windows" => "windows",
          "sampled" => "sampled", "alive" => "live_samples", "takes" => "profile_bytes"
        }.freeze

        def self.switches = ["--json"]

        def run
          result = ask_workers("status")
          warn_of(result)
          statuses = result.answers.map(&:status)
          @out.puts @arguments.switch?("--json") ? JSON.pretty_generate(statuses) : text(statuses)
          0
        end

        private

        def text(statuses)
          Table.text(COLUMNS.keys, statuses.map { |status| COLUMNS.values.map { |field| cell(field, status[field]) } })
        end

        def cell(field, value)
          case field
          when "pid" then value.to_s
          when "profile_bytes" then value && Telemetry::Size.of(value)
          else value
          end
        end
      end
    end
  end
end
