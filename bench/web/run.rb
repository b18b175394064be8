# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "cases"
require_relative "contest"
require_relative "idle"
require_relative "summary"

module Bench
  module Web
    # A whole run: the chosen cases one after another, their raw results, the summary.
    class Run
      RUNS = File.expand_path("../runs", __dir__)
      # Orientation in a few minutes: too short to be cited.
      QUICK = { rounds: 2, seconds: 1 }.freeze

      # @param only [Array<String>] names of cases; empty: all
      # @param quick [Boolean]
      # @param command [String] as typed, for the record
      def initialize(only: [], quick: false, command: "bin/bench web")
        @cases = [*Cases.all, Idle::CASE]
        unknown = only - @cases.map(&:name)
        raise ArgumentError, "no such case: #{unknown.join(", ")} (--list names them)" unless unknown.empty?
        @cases.select! { |a_case| only.include?(a_case.name) } unless only.empty?
        @quick = quick
        @command = command
      end

      # @return [String] the folder that holds the results
      def call
        folder = fresh_folder
        FileUtils.mkdir_p(File.join(folder, "raw"))
        write(folder, "run.json", date: Time.now.strftime("%F %H:%M"), command: @command, quick: @quick,
                                  machine: Machine.facts)
        @cases.each { |a_case| write(folder, "raw/#{a_case.name}.json", measure(a_case)) }
        File.write(File.join(folder, "summary.md"), Summary.new(folder).to_s)
        folder
      end

      private

      def fresh_folder
        base = File.join(RUNS, "#{Time.now.strftime("%F-%H%M")}-web")
        [base, *(2..).lazy.map { |n| "#{base}-#{n}" }.first(9)].find { |folder| !File.exist?(folder) }
      end

      def measure(a_case)
        puts "", a_case.title
        a_case = shortened(a_case) if @quick
        (a_case.name == "idle" ? Idle : Contest).new(a_case, method(:progress)).run
      end

      def shortened(a_case)
        a_case.dup.tap do |quick|
          quick.rounds = [quick.rounds, QUICK[:rounds]].min
          quick.seconds = [quick.seconds, QUICK[:seconds]].min
        end
      end

      def progress(a_case, figures, round)
        puts format("  %d/%d  %-24s %9.1f req/s  p99 %8.2f ms  %7.1f µs CPU  %.3f waits  %d errors",
                    round + 1, a_case.rounds, *figures.values_at(:server, :rps, :p99_ms, :cpu_us, :waits, :errors))
      end

      def write(folder, name, content) = File.write(File.join(folder, name), JSON.pretty_generate(content) << "\n")
    end
  end
end
