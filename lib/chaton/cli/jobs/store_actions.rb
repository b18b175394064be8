# frozen_string_literal: true

require_relative "../../telemetry/still_running"
require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs stats
      class Stats < Command
        def run
          positional
          stats = client.stats
          rows = stats.map { |name, value| "#{name.to_s.ljust(10)}  #{Table.cell(value).rjust(12)}" }
          answer({ store: client.address, **stats }, ["store       #{client.address}", *rows].join("\n"))
        end
      end

      # chaton jobs migrate: makes the tables of a store in PostgreSQL, or brings them up to date. A server that has the
      # right to make them does so by itself.
      class Migrate < Command
        def run
          version = client.migrate
          answer({ version: version }, "#{client.address}: the tables have version #{version}")
        end
      end

      # chaton jobs backup FILE: copies a store that is in use.
      class Backup < Command
        def run
          file = File.expand_path(positional("FILE").first)
          raise Chaton::Error, "#{file} exists; remove it or name another file" if File.exist?(file)

          Progress.on(@err, "backup", 0) do |progress|
            client.backup(file) { |done, pages| progress.at(done, pages) }
          end
          bytes = File.size(file)
          answer({ file: file, bytes: bytes }, "#{file}: #{Config::Types.thousands(bytes)} bytes")
        end
      end

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
