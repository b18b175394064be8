# frozen_string_literal: true

require "json"
require_relative "../table"
require_relative "command"

module Chaton
  class CLI
    module Trace
      # chaton trace status
      class Status < Command
        # Column => field.
        COLUMNS = {
          "worker" => "worker", "pid" => "pid", "traces" => "running", "seconds" => "seconds", "windows" => "windows",
          "sampled" => "sampled", "live" => "live_samples", "stacks" => "stacks", "collections" => "collections",
          "dropped" => "dropped"
        }.freeze

        # @return [Array<String>]
        def self.switches = ["--json"]

        # @return [Integer] exit status
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
          when "seconds" then value&.round(1)
          else value
          end
        end
      end
    end
  end
end
