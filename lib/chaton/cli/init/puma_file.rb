# frozen_string_literal: true

require "ripper"
require_relative "../../config/puma_lines"

module Chaton
  class CLI
    class Init < Command
      # Takes over a config/puma.rb: most of its lines mean the same. Lines that have no effect or are refused become
      # comments with the reason.
      module PumaFile
        PATH = "config/puma.rb"
        # Puma's few threads are for requests that compute. They would be all there are here, too.
        THREADS = "threads that wait cost others nothing here: without the line there are 1 to 32 (RAILS_MAX_THREADS " \
                  "changes that), at most as many as the database pool has connections"
        # Line => why it is not taken over.
        REASONS = { **Config::PumaLines::ACCEPTED, **Config::PumaLines::REFUSED, threads: THREADS }
          .transform_keys(&:to_s).freeze

        # @return [Array<String>] of a config/chaton.rb
        def self.lines
          return [] unless File.file?(PATH)

          rest = File.readlines(PATH, chomp: true).reject { |line| line.strip.empty? || line.lstrip.start_with?("#") }
          taken = ["# from #{PATH}"]
          until rest.empty?
            reason = reason(rest.first)
            taken.concat(reason ? comment(statement(rest), reason) : [rest.shift])
          end
          taken
        end

        def self.reason(line)
          name, plugin = line.match(/\A\s*(\w+!?)(?:[ (]+[:"'](\w+))?/)&.captures
          return REASONS[name] unless name == "plugin"

          known = ["tmp_restart", *Config::PumaLines::SERVICE_PLUGINS.keys].include?(plugin)
          Config::PumaLines::PLUGINS.fetch(plugin, Config::PumaLines::NO_PLUGIN) unless known
        end

        # Removes the lines of the first statement.
        def self.statement(rest)
          count = (1..rest.size).find { |number| Ripper.sexp(rest.first(number).join("\n")) } || 1
          rest.shift(count)
        end

        def self.comment(lines, reason)
          indent = lines.first[/\A */]
          ["#{indent}# not taken over: #{reason}", *lines.map { |line| "#{indent}# #{line.delete_prefix(indent)}" }]
        end
        private_class_method :reason, :statement, :comment
      end
    end
  end
end
