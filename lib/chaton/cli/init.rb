# frozen_string_literal: true

require_relative "command"
require_relative "init/karafka_file"
require_relative "init/puma_file"
require_relative "init/sidekiq_lines"
require_relative "init/thruster_variables"

module Chaton
  class CLI
    # chaton init: writes config/chaton.rb from the configuration of Puma, Thruster, Sidekiq and Karafka.
    class Init < Command
      HEAD = <<~TEXT
        # Settings of Chaton. `chaton check` tells what results, `chaton check --all` names every setting; the page
        # docs/CONFIGURATION.md below `bundle show chaton` explains them.
      TEXT
      # First word => lines to begin with, for what no file sets.
      OFFERS = {
        "workers" => "# workers 2                 # processes; without it one\n",
        "jobs" => <<~TEXT,
          # Background jobs, in a SQLite file until another store is named (docs/JOBS.md):
          # jobs do
          #   store "redis://127.0.0.1:6379/0"
          #   cron "nightly", "0 3 * * *", "NightlyJob"
          # end
        TEXT
        "streams" => <<~TEXT,
          # Consumers of records, in a log of Chaton's own until a broker is named (docs/STREAMS.md):
          # streams do
          #   broker "kafka://127.0.0.1:9092"
          #   topic "events", "EventsConsumer", group: "app"
          # end
        TEXT
        "admin" => <<~TEXT
          # Health checks, metrics, and the page of `chaton dashboard` (docs/HEALTH.md):
          # admin { bind "tcp://127.0.0.1:9394" }
        TEXT
      }.freeze

      def self.options = %i[environment].map { |name| Config::Options[name] }

      def self.switches = ["--print"]

      def run
        @arguments.rest_problem("takes no argument, not #{@arguments.rest.first.inspect}") unless @arguments.rest.empty?
        raise Config::Invalid, @arguments.problems unless @arguments.problems.empty?

        parts = [PumaFile.lines, ThrusterVariables.lines, SidekiqLines.lines(@arguments.given),
                 KarafkaFile.lines].reject(&:empty?)
        text = [HEAD, *parts.map { |lines| "#{lines.join("\n")}\n" }, *offers(parts.flatten)].join("\n")
        @arguments.switch?("--print") ? @out.print(text) : write(text)
        0
      end

      private

      # @param taken [Array<String>] lines
      def offers(taken) = OFFERS.reject { |word, _| taken.any? { |line| line.match?(/\A\s*#{word}\b/) } }.values

      def write(text)
        path = Config::Loader::OWN_FILE
        raise ConfigError, "#{path} exists; --print shows what would be written" if File.exist?(path)

        require "fileutils"
        FileUtils.mkdir_p(File.dirname(path))
        File.write(path, text)
        left = text.scan(/^ *# not taken over/).size
        @out.puts "wrote #{path}#{"; #{left} lines were not taken over, see its comments" if left.positive?}"
      end
    end
  end
end
