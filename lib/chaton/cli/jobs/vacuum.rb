# frozen_string_literal: true

require_relative "../../telemetry/still_running"
require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs vacuum: shrinks the file of a store that is in use.
      class Vacuum < Command
        def self.switches = [*super, "--yes"]

        def run
          tell = ->(seconds) { @err.puts "vacuum: #{seconds} s so far" }
          before, after = Telemetry::StillRunning.watch(tell) { client.vacuum(@arguments.switch?("--yes")) }
          sizes = [before, after].map { |bytes| Config::Types.thousands(bytes) }
          answer({ before: before, after: after }, "#{client.address}: #{sizes.join(" bytes before, now ")}")
        end
      end
    end
  end
end
